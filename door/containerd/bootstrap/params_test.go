package bootstrap

import (
	"bytes"
	"strings"
	"testing"

	bootapi "github.com/containerd/containerd/api/runtime/bootstrap/v1"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/anypb"
)

func encode(t *testing.T, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestReadParams(t *testing.T) {
	inv := Invocation{Namespace: "n", ID: "c"}
	options := &anypb.Any{TypeUrl: "containerd.runc.v1.Options", Value: []byte{1}}
	dir := "/run/s"
	message := &bootapi.BootstrapParams{
		InstanceID: "c", Namespace: "n", ContainerdTtrpcAddress: "/t", SocketDir: &dir,
		LogLevel: bootapi.LogLevel_LOG_LEVEL_TRACE, Extensions: []*bootapi.Extension{{Value: options}, {}},
	}
	other := proto.CloneOf(message)
	other.InstanceID = "another"
	for name, test := range map[string]struct {
		input []byte
		want  Params
	}{
		"nothing":         {nil, Params{}},
		"runtime options": {encode(t, options), Params{Extensions: []*anypb.Any{options}}},
		"parameters": {
			encode(t, message),
			Params{Modern: true, SocketDir: dir, TTRPC: "/t", Debug: true, Extensions: []*anypb.Any{options}},
		},
		"short parameters": {
			encode(t, &bootapi.BootstrapParams{InstanceID: "c", Namespace: "n"}), Params{Modern: true},
		},
	} {
		got, err := ReadParams(bytes.NewReader(test.input), inv)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(test.want, got, protocmp.Transform()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	// Options and parameters of another container have the same wire format in their first two fields.
	if got, err := ReadParams(bytes.NewReader(encode(t, other)), inv); err == nil && got.Modern {
		t.Errorf("parameters of another container: got %+v", got)
	}
}

func TestReadParamsRefuses(t *testing.T) {
	for name, input := range map[string]string{"garbage": "\xff\xff", "too much": strings.Repeat("x", maxInput+1)} {
		if got, err := ReadParams(strings.NewReader(input), Invocation{}); err == nil {
			t.Errorf("%s: got %+v, want an error", name, got)
		}
	}
}
