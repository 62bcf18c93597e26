// The drawings of a plan, in their order: id, title, what to see in it, and how it is drawn.
const plansName = (point) => `${label(point.axes.plan)}: ${point.strategy}`;
const DRAWINGS = [
  ["layout", "Where the GPUs sit", "", (drawn, width) => drawn.plan.layout && layoutFigure(drawn.plan.layout, width)],
  ["network", "Who talks over which network", "Bars grow with the logarithm of a GPU's bandwidth; “not hidden” is what the iteration waits for.", (drawn, width) => drawn.plan.layout && networkFigure(drawn.plan.layout, width)],
  ["time", "Where the time goes", "One iteration of the plan, and of the other plans below it.", (drawn, width, again) => timeBars(drawn.points, width, again, { name: plansName })],
  ["memory", "Memory by stage", "The fullest GPU of every pipeline stage; dashed: what is usable.", (drawn, width) => memoryBars(drawn.plan.memory, width)],
  ["timeline", "Pipeline timeline", "A row for every stage; gaps are waiting.", (drawn, width) => timelineFigure(drawn.plan.timeline, drawn.plan.remark, width)],
  ["kernels", "Kernels of a layer", "How near each comes to its roof: arithmetic on the right, memory on the left.", (drawn, width, again) => rooflineFigure(drawn.plan.kernels, width, again)],
];
