package front

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/containerd/containerd/api/types"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/bulkhead-project/bulkhead/internal/version"
)

// featuresType is containerd's type of the features' JSON.
const featuresType = "types.containerd.io/opencontainers/runtime-spec/1/features/Features"

// maxInfo bounds the options on standard input, in bytes.
const maxInfo = 10 << 20

// info prints a RuntimeInfo. Containerd's CRI plugin asks for it at its start. Standard input has runtime options, which
// are repeated in the answer.
func (p Program) info() error {
	input, err := io.ReadAll(io.LimitReader(p.Stdin, maxInfo))
	if err != nil {
		return fmt.Errorf("read the runtime options from standard input: %w", err)
	}
	info := &types.RuntimeInfo{Name: Name, Version: &types.RuntimeVersion{Version: version.Version}}
	if len(input) > 0 {
		info.Options = &anypb.Any{}
		if err := proto.Unmarshal(input, info.Options); err != nil {
			return fmt.Errorf("read the runtime options from standard input: %w", err)
		}
	}
	features, err := json.Marshal(p.Features())
	if err != nil {
		return fmt.Errorf("describe the runtime: %w", err)
	}
	info.Features = &anypb.Any{TypeUrl: featuresType, Value: features}
	b, err := proto.Marshal(info)
	if err == nil {
		_, err = p.Stdout.Write(b)
	}
	if err != nil {
		return fmt.Errorf("describe the runtime: %w", err)
	}
	return nil
}
