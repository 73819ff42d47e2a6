package cri

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/internal/test/critest"
	"github.com/bulkhead-project/bulkhead/internal/test/enginetest"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
)

// TestBehaviours tests each call of the CRI over the socket and in VMs. The tests share a node with forks of one VM.
func TestBehaviours(t *testing.T) {
	n := newNode(t, enginetest.Forks)
	n.serve(t)
	for _, b := range []struct {
		name string
		test func(context.Context, *testing.T, *node)
	}{
		{"repeated ends", repeatedEnds},
		{"lists", lists},
		{"attempts", attempts},
		{"joined requests", joined},
		{"verbose status", verbose},
		{"events", events},
		{"stats", stats},
		{"metrics", metrics},
		{"logs", logs},
		{"resources", resources},
		{"exec", execs},
		{"exits", exits},
		{"users", users},
		{"privileges", privileges},
		{"seccomp", seccomp},
		{"refused", refused},
		{"devices", devices},
		{"sysctls", sysctls},
		{"images", images},
		{"stalled registry", stalled},
		{"updates", updates},
		{"host paths", hostPaths},
		{"host paths refused", hostPathsRefused},
		{"block devices", blockDevices},
		{"operations on files", fileOps},
		{"port-forward", portForward},
		{"host ports", hostPorts},
		{"killed VM", killedVM},
	} {
		t.Run(b.name, func(t *testing.T) { b.test(testdeadline.Context(t, time.Minute), t, n) })
	}
	n.nothingLeft(t)
}

// podOf runs a pod until the test's end.
func (n *node) podOf(ctx context.Context, t *testing.T, config *runtimeapi.PodSandboxConfig) string {
	t.Helper()
	if config.LogDirectory == "" {
		config.LogDirectory = n.logs + "/" + config.GetMetadata().GetName()
	}
	id := n.Run(ctx, t, config)
	t.Cleanup(func() { n.Remove(context.WithoutCancel(ctx), t, id) })
	return id
}

// sleeper starts a container that sleeps. change, if not nil, changes its configuration.
func (n *node) sleeper(
	ctx context.Context, t *testing.T, pod, name string, config *runtimeapi.PodSandboxConfig, change func(*runtimeapi.ContainerConfig),
) string {
	t.Helper()
	c := critest.Container(name, "sleep", "1000")
	if change != nil {
		change(c)
	}
	return n.Start(ctx, t, pod, c, config)
}

// containerOf returns a container's status.
func (n *node) containerOf(ctx context.Context, t *testing.T, id string) *runtimeapi.ContainerStatus {
	t.Helper()
	res, err := n.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
	if err != nil {
		t.Fatal(err)
	}
	return res.GetStatus()
}

// ended waits for a container's end.
func (n *node) ended(ctx context.Context, t *testing.T, id string) *runtimeapi.ContainerStatus {
	t.Helper()
	for {
		if st := n.containerOf(ctx, t, id); st.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED {
			return st
		}
		pause(ctx, t)
	}
}

// pause waits between two checks of a state that sends no notifications.
func pause(ctx context.Context, t *testing.T) {
	t.Helper()
	select {
	case <-time.After(10 * time.Millisecond):
	case <-ctx.Done():
		t.Fatal(ctx.Err())
	}
}

// expect checks an error's code.
func expect(t *testing.T, what string, err error, want codes.Code) {
	t.Helper()
	if status.Code(err) != want {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}
