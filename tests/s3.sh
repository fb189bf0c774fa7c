#!/bin/bash
# Prints the directory of a server of S3, moto_server, and of Amazon's client for it, aws.
# Exit status 69: there can be none here, and why.
moto=5.2.5 awscli=1.46.3
exec "$(dirname "$0")/pip.sh" "s3-moto-$moto-awscli-$awscli" aws "moto[server]==$moto" "awscli==$awscli"
