// Package shim is the near side of a pod's own process: it starts one, finds a
// running one, and talks to it. The process itself (cmd/bulkhead-shim) is made
// of the packages below this one.
//
// A shim serves containerd's Task (v3) and Sandbox (v1) services and our
// extension service on one unix socket of its state directory. Start makes the
// process and its machine; CreateSandbox and StartSandbox then make the pod; a
// shim that was started and has got no CreateSandbox yet is a member of a pool.
// A shim lives until ShutdownSandbox, and outlives whoever started it. When it
// is killed its machine lives on, and Adopt starts another shim for it.
package shim

import (
	"context"
	"errors"
)

// Start starts a shim, which at once starts its machine, and returns when its
// services are served: the machine may still be coming up, and StartSandbox
// waits for it. When the shim fails to start nothing is left behind, and the
// error carries the tail of its stderr.
func Start(ctx context.Context, o Options) (*Client, error) {
	return nil, errors.ErrUnsupported
}

// Adopt starts a new shim for a sandbox whose shim has died. Of o it uses ID,
// Instance, StateDir, DataDir, Owner, Spawn, Path and Logger: the rest is in
// the state. A machine that has died meanwhile is no error: its containers have
// then ended, with the reason VMKilled.
func Adopt(ctx context.Context, o Options) (*Client, error) {
	return nil, errors.ErrUnsupported
}
