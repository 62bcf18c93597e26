"""Nodes and devices, wherever a launch says them."""

from planner.jobs.shell import read_script
from planner.jobs.shell.processes import processes_of
from tests.each import each


@each(
    ("text", "nodes", "per_node"),
    [
        ("torchrun --nnodes=4 --nproc_per_node 8 train.py --x 1", 4, 8),
        ("torchrun --nnodes 2:4 --nproc-per-node=8 train.py --x 1", 4, 8),
        ("python -m torch.distributed.launch --nproc_per_node=4 train.py --x 1", 1, 4),
        ("CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node gpu train.py --x 1", 1, 2),
        ("deepspeed --num_nodes 2 --num_gpus 8 train.py --x 1", 2, 8),
        ("deepspeed --include localhost:0,1,2 train.py --x 1", 1, 3),
        ("deepspeed --include=a:0,1@b:0,1 train.py --x 1", 2, 2),
        ("echo 'a slots=8' > h; echo 'b slots=8' >> h; deepspeed --hostfile h train.py --x 1", 2, 8),
        ("deepspeed train.py --x 1", 1, None),
        ("accelerate launch --num_machines 2 --num_processes 16 train.py --x 1", 2, 8),
        ("srun -N 4 --ntasks-per-node=8 python train.py --x 1", 4, 8),
        ("#SBATCH --nodes=4\n#SBATCH --gres=gpu:a100:8\nsrun --ntasks-per-node 1 python train.py --x 1", 4, 8),
        ("#SBATCH -N2\n#SBATCH -n16\nsrun python train.py --x 1", 2, 8),
        ("mpirun -np 16 -npernode 8 python train.py --x 1", 2, 8),
        ("mpirun -np 16 -H a:8,b:8 --map-by slot python train.py --x 1", 2, 8),
        ("NPROC_PER_NODE=4 swift sft --model m", 1, 4),
        ("export NNODES=2 NPROC_PER_NODE=8; llamafactory-cli train a.yaml", 2, 8),
        ("torchrun --nnodes $NNODES --nproc_per_node 8 train.py --x 1", None, 8),
        ("python train.py --x 1", None, None),
    ],
)
def test_nodes_and_processes_are_found_where_they_are_said(text, nodes, per_node):
    (launch,) = read_script(text).launches
    found = processes_of(launch)
    assert (found.nodes, found.per_node) == (nodes, per_node)
