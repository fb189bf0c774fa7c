#!/bin/bash
# Prints the folder of a server of S3, moto_server, and of Amazon's client for it, aws.
# Exit status 69: there can be none here, and why.
exec "$(dirname "$0")/pip.sh" s3 aws 'moto[server]' awscli
