-- Slurm's client-side filter (CliFilterPlugins=cli_filter/lua, this file as cli_filter.lua beside slurm.conf): asks the
-- planner whether the model that a job names in --comment can train on the GPUs that it asks for, and refuses what cannot.
--
--   sbatch --comment "plan:llama3-70b:dgx-h100" --nodes 8 --gpus-per-node 8 job.sh
--
-- It runs in the user's own sbatch, so that a slow answer holds up nobody else. Jobs without such a comment pass.

local PLAN = os.getenv("PLAN_COMMAND") or "plan"

-- A word that the shell takes as it is; the comment is whatever somebody typed.
local function plain(word)
  return word ~= nil and word:match("^[%w%._-]+$") ~= nil
end

function slurm_cli_pre_submit(options, pack_offset)
  local comment = options["comment"]
  local model, cluster = (comment or ""):match("^plan:([^:]+):([^:]+)$")
  if model == nil then
    return slurm.SUCCESS
  end
  local nodes, each = tonumber((options["nodes"] or ""):match("^%d+")), tonumber((options["gpus-per-node"] or ""):match("%d+$"))
  if not (plain(model) and plain(cluster) and nodes and each) then
    slurm.log_error("plan: --comment plan:MODEL:CLUSTER needs --nodes and --gpus-per-node")
    return slurm.ERROR
  end
  local question = string.format("--model %s --cluster %s --gpus %d", model, cluster, nodes * each)
  local pipe = io.popen(PLAN .. " " .. question .. " --no-reasons --time-limit 20s --format env 2>&1; echo exit=$?")
  local answer = pipe:read("*a")
  pipe:close()
  local code = tonumber(answer:match("exit=(%d+)%s*$"))
  if code == 0 then
    slurm.log_info("plan: tp %s pp %s dp %s", answer:match("\nTP=(%d+)"), answer:match("\nPP=(%d+)"), answer:match("\nDP=(%d+)"))
    return slurm.SUCCESS
  end
  if code == 2 or code == 3 then -- a wrong question, or proved infeasible: trying again cannot help
    slurm.log_error("%s", answer:match("plan: [^\n]*") or answer)
    return slurm.ERROR
  end
  slurm.log_info("plan: no answer (exit %s); the job passes", tostring(code)) -- out of time, or a defect: nobody's fault
  return slurm.SUCCESS
end

function slurm_cli_setup_defaults(options, early_pass)
  return slurm.SUCCESS
end

function slurm_cli_post_submit(offset, job_id, step_id)
  return slurm.SUCCESS
end
