#!/bin/sh
# Assigns the nodes of a graph in chunks to partitions with ParMETIS, for DGL's distributed partitioning. "A graph that no machine can
# partition" in dgl-tools-partition(7) explains the chunks and their metadata, and partitions the graph by this assignment.
#
# Run it in a directory with ip_config.txt, and with tools/, which is that of DGL's repository. pm_dglpart, the program of PM4GNN, reads all
# files on all hosts, so the chunks must be on storage that the hosts and this machine share, here in /nfs/job/chunked. g is the name of the
# graph in the metadata. mpirun starts pm_dglpart over ssh; give it your hosts.
#
# To build pm_dglpart with a C compiler, cmake and an MPI (apt-get install cmake libopenmpi-dev openmpi-bin):
#
#   for part in GKlib METIS PM4GNN; do git clone https://github.com/KarypisLab/$part; done
#   (cd GKlib && make config prefix=/nfs/pm && make install)
#   (cd METIS && make config i64=1 prefix=/nfs/pm gklib_path=/nfs/pm && make install)
#   (cd PM4GNN && make config cc=mpicc prefix=/nfs/pm gklib_path=/nfs/pm metis_path=/nfs/pm && make install)
#
# This was tested with the scripts of DGL 2.4.0, Open MPI 4.1.4, and GKlib e2856c2, METIS a6e6a2c and PM4GNN e9c5a98 of KarypisLab.
# Two similar programs do not work: DGL's parmetis_wrapper.py calls an unpublished pm_dglpart3 and ignores its exit status, and the
# pm_dglpart of ParMETIS 4.0.3 accepts other arguments and reads other files.
# shellcheck disable=SC1083,SC2088 # placeholders of dgl-env, and a home directory on the hosts
set -e

ipconf-check ip_config.txt | host-probe --workspace /nfs/job |
  part-map --workspace /nfs/job \
    --script-folder tools/distpartitioning | part-push |
  dgl-env --role worker -- env PMI_RANK={rank} \
    python3 distpartitioning/parmetis_preprocess.py \
    --schema_file metadata.json --input_dir /nfs/job/chunked \
    --output_dir /nfs/job/parmetis --num_parts 2 | dgl-spawn

mpirun --host 10.0.0.1,10.0.0.2 --wdir /nfs/job/parmetis \
  /nfs/pm/bin/pm_dglpart /nfs/job/chunked/g 2 \
  parmetis_nfiles.txt parmetis_efiles.txt

PYTHONPATH=tools python3 \
  tools/distpartitioning/parmetis_postprocess.py \
  --schema_file metadata.json --postproc_input_dir /nfs/job/chunked \
  --parmetis_output_file /nfs/job/chunked/g_part.2 \
  --partitions_dir /nfs/job/chunked/assignment
