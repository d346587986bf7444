#!/usr/bin/env python3
"""Processes meet under other programs' launchers. For srun and torchrun, the test only sets their
variables. It runs the real mpirun; if mpirun is not installed, exits with 77 (skipped).

usage: launchers_test.py PROGRAM simulated|mpirun
"""

import os
import shutil
import socket
import subprocess
import sys
import tempfile

LAUNCHERS = ("LOCKSTEP_", "OMPI_", "PMI", "MPI_", "SLURM_", "TORCHELASTIC_", "NCCL_COMM_ID")
TORCHRUN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def environment(variables):
    """Returns this process's environment with these variables, but without any launcher's."""
    inherited = {name: value for name, value in os.environ.items()
                 if not name.startswith(LAUNCHERS) and name not in TORCHRUN}
    return inherited | {name: str(value) for name, value in variables.items()}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def torchrun(rank, nodes, per_node, port):
    return {"RANK": rank, "WORLD_SIZE": nodes * per_node, "LOCAL_RANK": rank % per_node,
            "LOCAL_WORLD_SIZE": per_node, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port,
            "TORCHELASTIC_RUN_ID": f"none{port}"}


def srun(rank, nodes, per_node, port):
    return {"SLURM_PROCID": rank, "SLURM_NTASKS": nodes * per_node,
            "SLURM_LOCALID": rank % per_node, "SLURM_NODEID": rank // per_node,
            "SLURM_STEP_TASKS_PER_NODE": f"{per_node}(x{nodes})" if nodes > 1 else per_node,
            "SLURM_STEP_NODELIST": "localhost,gpu[01-07]", "SLURM_JOB_ID": port,
            "SLURM_STEP_ID": 1}


def expected(launcher, nodes, per_node):
    places = " ".join(f"{rank % per_node}/{per_node}:true" for rank in range(nodes * per_node))
    return f"{launcher} {nodes * per_node} {places}\n"


def check(what, got, wanted):
    if got != wanted:
        sys.exit(f"{what}: got {got!r}, expected {wanted!r}")
    print(what, "ok")


def secret_file(folder):
    """Makes a secret as the program's own message says, and returns its file."""
    path = os.path.join(folder, ".lockstep-secret")
    made = f"(umask 077; head -c 32 /dev/urandom | base64 > '{path}')"
    subprocess.run(["sh", "-c", made], check=True)
    return path


def start_all(program, variables, nodes, per_node, **more):
    """Returns what all processes print, their errors, and the sum of their statuses."""
    port = free_port()
    processes = [
        subprocess.Popen([program, "meet"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                         text=True,
                         env=environment(variables(rank, nodes, per_node, port) | more))
        for rank in range(nodes * per_node)]
    output, errors = zip(*[process.communicate() for process in processes])
    return "".join(output), "".join(errors), sum(process.returncode for process in processes)


def simulated(program):
    with tempfile.TemporaryDirectory() as folder:
        secret = {"LOCKSTEP_SECRET_FILE": secret_file(folder)}
        for variables in torchrun, srun:
            for nodes, per_node, more in (1, 3, {}), (2, 2, secret):
                name = variables.__name__
                check(f"{name}, {nodes} nodes",
                      start_all(program, variables, nodes, per_node, **more),
                      (expected(name, nodes, per_node), "", 0))
            output, errors, status = start_all(program, variables, 2, 1)
            check(f"{name}, without a secret",
                  (output, errors.count(" need a secret, because anybody "), status), ("", 2, 4))
        os.chmod(secret["LOCKSTEP_SECRET_FILE"], 0o644)
        output, errors, status = start_all(program, torchrun, 2, 1, **secret)
        check("a secret that others can read", (output, errors.count("run chmod 600 "), status),
              ("", 2, 4))


def mpirun_command():
    """Returns mpirun with options for a small machine and for root, or None without mpirun."""
    mpirun = shutil.which("mpirun")
    if not mpirun:
        return None
    version = subprocess.run([mpirun, "--version"], capture_output=True, text=True, check=False)
    if "Open MPI" not in version.stdout:
        return [mpirun]
    return [mpirun, "--oversubscribe", "--allow-run-as-root"]


def real_mpirun(program):
    command = mpirun_command()
    if not command:
        print("mpirun is not installed")
        sys.exit(77)

    def run(mode, wrapper=(), **variables):
        return subprocess.run(command + ["-np", "3", *wrapper, program, mode], text=True,
                              capture_output=True, check=False,
                              env=environment(variables))

    check("mpirun", run("meet").stdout, expected("mpirun", 1, 3))
    check("mpirun, wrapped", run("meet", ("sh", "-c", '"$@"; exit $?', "sh")).stdout,
          expected("mpirun", 1, 3))
    address = f"127.0.0.1:{free_port()}"
    with tempfile.TemporaryDirectory() as folder:
        met = run("meet", LOCKSTEP_RENDEZVOUS=address, LOCKSTEP_SECRET_FILE=secret_file(folder))
    check("mpirun, an address given", met.stdout, expected("mpirun", 1, 3))
    failed = run("throw")
    check("mpirun, a failure", ("rank 1 threw" in failed.stderr, failed.returncode), (True, 4))


if __name__ == "__main__":
    {"simulated": simulated, "mpirun": real_mpirun}[sys.argv[2]](sys.argv[1])
