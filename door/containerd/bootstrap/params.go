package bootstrap

import (
	"fmt"
	"io"

	bootapi "github.com/containerd/containerd/api/runtime/bootstrap/v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// maxInput bounds standard input, in bytes. Containerd sends runtime options of any size.
const maxInput = 10 << 20

// Params are the parameters on standard input.
type Params struct {
	// Modern is true for containerd 2.3 and up, which wants a BootstrapResult.
	Modern    bool
	SocketDir string // empty means DefaultSocketDir
	// TTRPC is the address of containerd's event service, from the message. If it is empty, the environment has it.
	TTRPC string
	// Debug asks for a log of level debug.
	Debug bool
	// Extensions are further messages. The runtime options are among them.
	Extensions []*anypb.Any
}

// ReadParams reads standard input of the action start. Older versions of containerd send the runtime options as an Any,
// which can also parse as BootstrapParams. So a message counts as BootstrapParams only if it names the id and the
// namespace of the arguments.
func ReadParams(r io.Reader, inv Invocation) (Params, error) {
	input, err := io.ReadAll(io.LimitReader(r, maxInput+1))
	if err != nil {
		return Params{}, fmt.Errorf("read the parameters from standard input: %w", err)
	}
	if len(input) > maxInput {
		return Params{}, fmt.Errorf("read the parameters from standard input: must be at most %d bytes", maxInput)
	}
	var sent bootapi.BootstrapParams
	if err := proto.Unmarshal(input, &sent); err == nil && sent.InstanceID == inv.ID && sent.Namespace == inv.Namespace {
		return modern(&sent, inv), nil
	}
	if len(input) == 0 {
		return Params{Debug: inv.Debug}, nil
	}
	var options anypb.Any
	if err := proto.Unmarshal(input, &options); err != nil {
		return Params{}, fmt.Errorf("read the runtime options from standard input: %w", err)
	}
	return Params{Debug: inv.Debug, Extensions: []*anypb.Any{&options}}, nil
}

func modern(sent *bootapi.BootstrapParams, inv Invocation) Params {
	p := Params{
		Modern: true, SocketDir: sent.GetSocketDir(), TTRPC: sent.ContainerdTtrpcAddress,
		Debug: inv.Debug || sent.LogLevel <= bootapi.LogLevel_LOG_LEVEL_DEBUG,
	}
	for _, e := range sent.Extensions {
		if e.GetValue() != nil {
			p.Extensions = append(p.Extensions, e.Value)
		}
	}
	return p
}
