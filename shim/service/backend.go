// Package service serves containerd's Task and Sandbox services and our
// extension service on top of one pod's sandbox.
package service

import (
	"context"
	"net"
	"os"

	"golang.org/x/sys/unix"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/sandbox"
)

// Sandbox is the interface of *sandbox.Sandbox that the services use.
type Sandbox interface {
	Create(ctx context.Context, c sandbox.Config, f sandbox.Files) error
	Start(ctx context.Context) error
	Stop(ctx context.Context) error
	Pause(ctx context.Context) error
	Resume(ctx context.Context) error
	Delete(ctx context.Context, force bool) error
	Status() sandbox.Status
	WaitBooted(ctx context.Context) error
	WaitStopped(ctx context.Context) (string, error)
	SetNetwork(ctx context.Context, r agentv1.SetNetwork, taps []*os.File) error
	Listening(ctx context.Context, known agentv1.Listening) (agentv1.Listening, error)
	Forward(ctx context.Context, port uint16) (net.Conn, error)
	Datagrams(ctx context.Context) (net.Conn, error)
	Resolver(ctx context.Context) (net.Conn, error)

	CreateContainer(ctx context.Context, c sandbox.ContainerConfig) error
	PauseContainer(ctx context.Context, id string) error
	ResumeContainer(ctx context.Context, id string) error
	Resize(ctx context.Context, limits agentv1.PodLimits, memoryMiB int) error
	GrowVolume(ctx context.Context, name string, bytes int64) error
	ReleaseVolumes(ctx context.Context) error
	UpdateContainer(ctx context.Context, id string, resources []byte) error
	ContainerStats(ctx context.Context, id string) (agentv1.Stats, error)
	Pids(ctx context.Context, id string) ([]int, error)
	ReadFile(ctx context.Context, id, path string, limit int) ([]byte, error)
	Pack(ctx context.Context, id, path string) (*agentv1.TreeReader, error)
	Unpack(ctx context.Context, id, path string, into bool) (*agentv1.TreeWriter, error)
	Stats(ctx context.Context) (agentv1.PodStats, error)
	WriteFiles(ctx context.Context, f agentv1.Files) (agentv1.FilesState, error)
	ReopenLog(ctx context.Context, id string, f *os.File) error

	CreateExec(ctx context.Context, e sandbox.ExecConfig) error
	ProcessStatus(p sandbox.Process) (sandbox.ProcessStatus, error)
	StartProcess(ctx context.Context, p sandbox.Process) (int, error)
	SignalProcess(ctx context.Context, p sandbox.Process, sig unix.Signal, all bool) error
	WaitProcess(ctx context.Context, p sandbox.Process) (sandbox.Exit, error)
	DeleteProcess(ctx context.Context, p sandbox.Process) (sandbox.Exit, error)
	ResizeProcess(ctx context.Context, p sandbox.Process, width, height uint16) error
	CloseInput(ctx context.Context, p sandbox.Process) error
	Attach(ctx context.Context, p sandbox.Process, c sandbox.Streams) (sandbox.Exit, error)
}

var _ Sandbox = (*sandbox.Sandbox)(nil)
