"""What programs print of a small cluster, shortened to what is read and some of what is not."""

SMI = """
==============NVSMI LOG==============

Driver Version                            : 550.54.14

Attached GPUs                             : 2
GPU 00000000:18:00.0
    Product Name                          : NVIDIA H100 80GB HBM3
    MIG Mode
        Current                           : Disabled
    PCI
        GPU Link Info
            PCIe Generation
                Max                       : 5
                Current                   : 1
            Link Width
                Max                       : 16x
                Current                   : 8x
    FB Memory Usage
        Total                             : 81559 MiB
    BAR1 Memory Usage
        Total                             : 131072 MiB
    GPU Power Readings
        Power Draw                        : 67.00 W
        Current Power Limit               : 500.00 W
        Default Power Limit               : 700.00 W
    Module Power Readings
        Current Power Limit               : N/A
GPU 00000000:2A:00.0
    Product Name                          : NVIDIA H100 80GB HBM3
    FB Memory Usage
        Total                             : 81559 MiB
"""

LISTED = """GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-1)
GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-2)
"""

TOPOLOGY = """\x1b[4m\tGPU0\tGPU1\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\x1b[0m
GPU0\t X \tSYS\tPIX\tSYS\t0-55\t0
GPU1\tSYS\t X \tSYS\tPXB\t56-111\t1
NIC0\tPIX\tSYS\t X \tSYS
NIC1\tSYS\tPXB\tSYS\t X

Legend:
  X    = Self
"""

PROCESSORS = """Architecture:            x86_64
CPU(s):                  224
Model name:              Intel(R) Xeon(R) Platinum 8480C
Socket(s):               2
"""

PORTS = """CA 'mlx5_0'
\tCA type: MT4129
\tNumber of ports: 1
\tPort 1:
\t\tState: Active
\t\tPhysical state: LinkUp
\t\tRate: 400
\t\tLink layer: InfiniBand
CA 'mlx5_1'
\tNumber of ports: 1
\tPort 1:
\t\tState: Down
\t\tPhysical state: Disabled
\t\tRate: 400
\t\tLink layer: InfiniBand
CA 'mlx5_2'
\tNumber of ports: 1
\tPort 1:
\t\tState: Active
\t\tPhysical state: LinkUp
\t\tRate: 100
\t\tLink layer: Ethernet
"""

SINFO = """PARTITION GRES NODES MEMORY NODELIST
batch* gpu:h100:2(S:0-1) 10 2063937 n[001-010]
batch* (null) 3 100000 c[1-3]
long gpu:h100:2(S:0-1) 10 2063937 n[001-010]
old gpu:nvidia_a100_80gb_pcie:4 6 1000000+ g[1-4,7],h2
"""

SCONTROL = """NodeName=a1 Arch=x86_64 CoresPerSocket=64
   Gres=gpu:a100:8(S:0-1)
   OS=Linux 5.15.0 #1 SMP Tue Nov 14 UTC 2023
   RealMemory=1024000 AllocMem=0 FreeMem=1 Sockets=2 Boards=1
   State=IDLE ThreadsPerCore=2
   CfgTRES=cpu=128,mem=1000G,gres/gpu=8,gres/gpu:a100=8

NodeName=a2 Arch=x86_64
   Gres=gpu:a100:8(S:0-1)
   RealMemory=1024000 Sockets=2
   State=DOWN+DRAIN
NodeName=login Arch=x86_64
   Gres=(null)
   RealMemory=64000 Sockets=1
   State=IDLE
"""


def kubernetes(*, product="NVIDIA-H100-80GB-HBM3", count="8", nodes=2, machine="p5.48xlarge", **labels):
    import json

    labels = {"nvidia.com/gpu.product": product, "node.kubernetes.io/instance-type": machine} | labels
    one = {
        "kind": "Node",
        "metadata": {"labels": labels},
        "status": {"capacity": {"nvidia.com/gpu": count, "memory": "2097152000Ki"}},
    }
    without = {"kind": "Node", "metadata": {"labels": {}}, "status": {"capacity": {"cpu": "8"}}}
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": [one] * nodes + [without]})
