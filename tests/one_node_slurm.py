"""A Slurm of one node on this machine, to try job scripts where there is no cluster.

    apt-get install slurm-wlm munge                      # and, for Open MPI under srun --mpi=pmix, libpmix-dev
    python tests/one_node_slurm.py start /tmp/slurm      # prints the variable that makes sbatch and the others find it
    SLURM_CONF=/tmp/slurm/slurm.conf sinfo
    python tests/one_node_slurm.py stop /tmp/slurm

It needs root or, where the ports are free, any user; only that user can submit jobs. All its files, its keys and its log files
are in the one folder, and it touches no configuration of the system. Everything is in real time: Slurm looks at time limits
every 30 seconds, and a requeued job starts again after the lifetime of a credential. That is 30 seconds here and not 120: a
busy machine may take more than the least, which is 10, to start a job.
"""

import contextlib
import getpass
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

PROGRAMS = "munged", "slurmctld", "slurmd", "sbatch", "srun"
SECONDS = 30  # in which the node has to be ready
CONF = """\
ClusterName=one
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge/socket,cred_expire=30
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/affinity
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_interval=2,batch_sched_delay=1
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
ReturnToService=2
KillWait=10
MinJobAge=600
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
NodeName={node} NodeAddr=127.0.0.1 CPUs={cores} CoresPerSocket={cores} ThreadsPerCore=1 State=UNKNOWN
PartitionName=work Nodes={node} Default=YES MaxTime=INFINITE State=UP PriorityTier=1 GraceTime=30
PartitionName=urgent Nodes={node} MaxTime=INFINITE State=UP PriorityTier=2 PreemptMode=OFF
"""


def missing():
    """The programs of Slurm and MUNGE that are not installed."""
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    return [name for name in PROGRAMS if shutil.which(name, path=path) is None]


def free_ports(count):
    """Ports of this machine that nothing listens on."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def start(folder):
    """Start the node and wait until it takes jobs. Returns the path of its slurm.conf.

    Raises RuntimeError with the last lines of the log files if it does not get ready.
    """
    folder = Path(folder).resolve()
    for name in ("munge", "state", "spool"):
        (folder / name).mkdir(parents=True, mode=0o755)
    node, conf = socket.gethostname().partition(".")[0], folder / "slurm.conf"
    count = len(os.sched_getaffinity(0))
    text = CONF.format(host=node, node=node, folder=folder, user=getpass.getuser(), ports=free_ports(2), cores=count)
    conf.write_text(text)
    key = folder / "munge" / "key"
    key.write_bytes(os.urandom(64))
    key.chmod(0o400)
    files = {name: folder / "munge" / name for name in ("socket", "pid", "log", "seed")}
    munged = ["munged", "--force", f"--key-file={key}", f"--socket={files['socket']}", f"--pid-file={files['pid']}"]
    munged += [f"--log-file={files['log']}", f"--seed-file={files['seed']}"]
    env = os.environ | {"SLURM_CONF": str(conf), "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"}
    for name in [name for name in env if name.startswith(("SLURM_", "PMI")) and name != "SLURM_CONF"]:
        del env[name]
    for command in (munged, ["slurmctld", "-f", str(conf)], ["slurmd", "-f", str(conf), "-N", node]):
        ended = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
        if ended.returncode:
            stop(folder)
            raise RuntimeError(f"{command[0]}: {ended.stderr or ended.stdout}")
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        state = subprocess.run(["sinfo", "-h", "-p", "work", "-o", "%T"], env=env, capture_output=True, text=True)
        if state.stdout.strip() == "idle":
            return conf
        time.sleep(0.5)
    words = "".join(path.read_text()[-1500:] for path in sorted(folder.glob("*.log")))
    stop(folder)
    raise RuntimeError(f"the node did not get ready in {SECONDS} s:\n{words}")


def stop(folder):
    """Cancel the jobs of the node, end its daemons and wait until they are gone. The files stay."""
    folder = Path(folder).resolve()
    conf = folder / "slurm.conf"
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        env = os.environ | {"SLURM_CONF": str(conf)}
        subprocess.run(["scancel", "-s", "KILL", "-f", f"--user={getpass.getuser()}"], env=env, capture_output=True, timeout=20)
    for file in (folder / "slurmd.pid", folder / "slurmctld.pid", folder / "munge" / "pid"):
        with contextlib.suppress(OSError, ValueError):
            pid = int(file.read_text())
            os.kill(pid, signal.SIGTERM)
            deadline = time.monotonic() + 15
            while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
                time.sleep(0.1)
            os.kill(pid, signal.SIGKILL)  # where it still waits for something; else there is no such process


@contextlib.contextmanager
def running(folder):
    """The path of the slurm.conf of a node that runs in `folder` until the end of the block."""
    conf = start(folder)
    try:
        yield conf
    finally:
        stop(folder)


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in ("start", "stop"):
        sys.exit("usage: python tests/one_node_slurm.py start|stop FOLDER")
    if sys.argv[1] == "stop":
        stop(sys.argv[2])
    elif missing():
        sys.exit(f"{', '.join(missing())} not found: install Slurm and MUNGE, such as by apt-get install slurm-wlm munge")
    else:
        print(f"export SLURM_CONF={start(sys.argv[2])}")
