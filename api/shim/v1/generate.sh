#!/bin/sh
# Generates the Go code of extension.proto with protoc and the plugins of the
# module's own versions. With a directory as argument it writes there instead,
# so that a test can compare.
set -eu
cd "$(dirname "$0")"
out=${1:-.}
tools=$(mktemp -d)
trap 'rm -rf "$tools"' EXIT
GOBIN=$tools go install google.golang.org/protobuf/cmd/protoc-gen-go github.com/containerd/ttrpc/cmd/protoc-gen-go-ttrpc 
protoc --proto_path=. \
	--plugin="$tools/protoc-gen-go" --go_out="$out" --go_opt=paths=source_relative \
	--plugin="$tools/protoc-gen-go-ttrpc" --go-ttrpc_out="$out" --go-ttrpc_opt=paths=source_relative \
	extension.proto
