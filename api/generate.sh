#!/bin/sh
# Generates the Go code of a service's definition with protoc and the plugins of the
# module's own versions: generate.sh FILE.proto [DIRECTORY]. The code lies beside the
# definition, or in the directory, so that a test can compare.
set -eu
dir=$(dirname "$1")
out=${2:-$dir}
tools=$(mktemp -d)
trap 'rm -rf "$tools"' EXIT
GOBIN=$tools go install google.golang.org/protobuf/cmd/protoc-gen-go github.com/containerd/ttrpc/cmd/protoc-gen-go-ttrpc
protoc --proto_path="$dir" \
	--plugin="$tools/protoc-gen-go" --go_out="$out" --go_opt=paths=source_relative \
	--plugin="$tools/protoc-gen-go-ttrpc" --go-ttrpc_out="$out" --go-ttrpc_opt=paths=source_relative \
	"$(basename "$1")"
