// Package cri is Bulkhead's engine: the CRI's runtime and image services in
// process, each pod in a virtual machine of its own, with one shim for each.
//
// The engine keeps nothing in memory that it cannot rebuild. What it owns lies
// in three places:
//
//	$DATA/names/<instance>/     one file a reserved name, which says whose id it is;
//	                            first made, last removed
//	$DATA/sandboxes/<id>/       pod.json, containers/<cid>/{container,exit}.json,
//	                            and vm/, which belongs to the shim
//	$STATE/<instance>/<id>/     the shim's sockets and the containers' bundles
//
// A pod's life: reserve → store (phase "starting") → network and shim →
// CreateSandbox, StartSandbox → publish → phase "ready", which is when others
// see it. A crash in between leaves a name and a phase from which Reap undoes
// whatever was done. A stopped pod has no process; its containers' ends are on
// disk.
//
// Errors carry a gRPC status code (status.Code), also in process.
package cri

import (
	"context"
	"log/slog"
	"net"

	internalapi "k8s.io/cri-api/pkg/apis"

	"github.com/bulkhead-project/bulkhead/guest"
	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/image"
	"github.com/bulkhead-project/bulkhead/internal/dirs"
	"github.com/bulkhead-project/bulkhead/internal/hostcgroup"
	"github.com/bulkhead-project/bulkhead/network"
)

// Options say what an engine works with. Roots, Instance, Images, Network and
// Guest are required.
type Options struct {
	Roots    dirs.Roots
	Instance string // "run", "cri", "node": lower-case letters, digits and '-'
	Images   *image.Store
	// Network gives the provider of a kind. It is called once a kind, and
	// what it returns is used until Close.
	Network func(kind network.Kind) (network.Provider, error)
	// DefaultNetwork is the kind for pods that do not choose; empty is user.
	DefaultNetwork network.Kind
	Guest          guest.Bundle
	// Shim is the path of bulkhead-shim; empty finds it beside the executable.
	Shim string
	// Accel is what pods get that do not choose; empty and Auto are probed.
	Accel hypervisor.Accel
	// Pool is how many ready clones are kept: 0 is one, negative is none.
	Pool int
	// UnsafeSysctls are the sysctls that pods may set beyond the safe ones.
	UnsafeSysctls []string
	// SeccompDir is the directory that profiles of type Localhost lie in, and
	// below; empty is Roots.Seccomp.
	SeccompDir string
	// HostPaths are the directories below which the paths lie that clients name:
	// of log directories and of the sources of mounts. They exist. A path
	// elsewhere is refused, and no link leads out of them.
	HostPaths []string
	// LogBytes is what a container's log file may hold until ReopenContainerLog, 0 is no
	// limit. Until then the container whose log is full waits.
	LogBytes int64
	// Internal says that the clients are doors of Bulkhead's own, whose internal
	// annotations are believed. Those of others are refused.
	Internal bool
	// Building, if set, is called when the template that a pod, named by its
	// UID, is to be cloned from has to be built first. It must not block.
	Building func(podUID string)
	// Logger is slog.Default() if nil.
	Logger *slog.Logger

	groups *hostcgroup.Host // New finds it
}

var (
	_ internalapi.RuntimeService      = (*Service)(nil)
	_ internalapi.ImageManagerService = (*Service)(nil)
	_ PodExtras                       = (*Service)(nil)
)

// PodExtras is what Bulkhead's doors need of pods and the CRI has no call for.
// Pods are named by id or unambiguous prefix.
type PodExtras interface {
	// PausePodSandbox stops a pod's machine, ResumePodSandbox lets it go on.
	// Both are idempotent.
	PausePodSandbox(ctx context.Context, podSandboxID string) error
	ResumePodSandbox(ctx context.Context, podSandboxID string) error
	// PodPauses tells how often the pod's machine has been paused while this
	// engine runs, and whether it is now; of a pod that is not there nothing.
	PodPauses(podSandboxID string) (times uint64, now bool)
	// PodFacts tells about the pod's machine.
	PodFacts(ctx context.Context, podSandboxID string) (*Facts, error)
	// Console returns the URL of the guest's console, from its start and
	// following; see Exec for the URL's form.
	Console(ctx context.Context, podSandboxID string) (string, error)
	// DialPort connects to a TCP port of the pod.
	DialPort(ctx context.Context, podSandboxID string, port int) (net.Conn, error)
}
