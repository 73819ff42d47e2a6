package engine

import (
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/grpc/codes"

	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
	"github.com/bulkhead-project/bulkhead/internal/errclass/grpccode"
)

func TestContainerRequestCheck(t *testing.T) {
	hooks := []specs.Hook{{Path: "/hook"}}
	for _, tt := range []struct {
		name string
		with func(*ContainerRequest)
		want codes.Code
		says string
	}{
		{name: "a plain one", with: func(*ContainerRequest) {}},
		{name: "no key", with: func(r *ContainerRequest) { r.Key = "" }, want: codes.InvalidArgument, says: "needs a key"},
		{name: "no specification", with: func(r *ContainerRequest) { r.Spec = nil }, want: codes.InvalidArgument, says: "a specification"},
		{name: "no root", with: func(r *ContainerRequest) { r.Root = nil }, want: codes.InvalidArgument, says: "a root"},
		{
			name: "a hook inside the container",
			with: func(r *ContainerRequest) { r.Spec.Hooks = &specs.Hooks{StartContainer: hooks} },
		},
		{
			name: "prestart", want: codes.InvalidArgument, says: `the prestart hook "/hook"`,
			with: func(r *ContainerRequest) { r.Spec.Hooks = &specs.Hooks{Prestart: hooks} }, //nolint:staticcheck // old clients'
		},
		{
			name: "createRuntime", want: codes.InvalidArgument, says: "the createRuntime hook",
			with: func(r *ContainerRequest) { r.Spec.Hooks = &specs.Hooks{CreateRuntime: hooks} },
		},
		{
			name: "createContainer", want: codes.InvalidArgument, says: "the createContainer hook",
			with: func(r *ContainerRequest) { r.Spec.Hooks = &specs.Hooks{CreateContainer: hooks} },
		},
		{
			name: "poststart", want: codes.InvalidArgument, says: "the poststart hook",
			with: func(r *ContainerRequest) { r.Spec.Hooks = &specs.Hooks{Poststart: hooks} },
		},
		{
			name: "poststop", want: codes.InvalidArgument, says: "the poststop hook",
			with: func(r *ContainerRequest) { r.Spec.Hooks = &specs.Hooks{Poststop: hooks} },
		},
		{
			name: "a root of a file system that is not known", want: codes.Unimplemented, says: `file system "xfs"`,
			with: func(r *ContainerRequest) { r.Root = containerv1.Block{Name: "/dev/sdb", FS: "xfs"} },
		},
	} {
		r := ContainerRequest{Key: "k", Spec: &specs.Spec{}, Root: containerv1.Image{ID: "i"}, Stdio: containerv1.Discard{}}
		tt.with(&r)
		err := r.check()
		if tt.want == codes.OK && err == nil {
			continue
		}
		if grpccode.Of(err) != tt.want || err == nil || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}
