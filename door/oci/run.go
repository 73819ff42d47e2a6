package oci

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/oci"
)

// SpecVersion is the newest version of the specification that the door converts.
const SpecVersion = "1.3.0"

// RunOptions are a request for a container that is created and started at once.
type RunOptions struct {
	CreateOptions
	// Detach returns after the start. Keep does not delete the container after its end.
	Detach, Keep bool
}

// Run creates and starts a container. Unless it is detached, Run waits for its end, deletes it and returns its exit
// code.
func (d *Door) Run(ctx context.Context, o RunOptions) (code int, err error) {
	pid, err := d.Create(ctx, o.CreateOptions)
	if err != nil {
		return 1, err
	}
	if err := d.Start(ctx, o.ID); err != nil {
		return 1, errors.Join(err, d.Delete(context.WithoutCancel(ctx), o.ID, true))
	}
	if o.Detach {
		return 0, nil
	}
	code, err = await(pid)
	if !o.Keep {
		err = errors.Join(err, d.Delete(context.WithoutCancel(ctx), o.ID, false))
	}
	return code, err
}

// RunExec runs another process in a container. Unless it is detached, it waits for its end and returns its exit code.
func (d *Door) RunExec(ctx context.Context, o ExecOptions, detach bool) (code int, err error) {
	p, err := d.Exec(ctx, o)
	if err != nil {
		return 255, err
	}
	if detach {
		return 0, p.Release()
	}
	return await(p.Pid)
}

// await waits for a child, passes signals on to it, and returns its exit code as a shell would.
func await(pid int) (code int, err error) {
	p, err := os.FindProcess(pid)
	if err != nil {
		return 1, err
	}
	signals := make(chan os.Signal, 16)
	signal.Notify(signals)
	signal.Reset(unix.SIGCHLD, unix.SIGURG, unix.SIGPIPE, unix.SIGTTIN, unix.SIGTTOU)
	go func() { // ends with the process
		for s := range signals {
			_ = p.Signal(s)
		}
	}()
	state, err := p.Wait()
	signal.Stop(signals)
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return 1, fmt.Errorf("wait for the container: %w", err)
	}
	if status, ok := state.Sys().(interface{ Signaled() bool }); ok && status.Signaled() {
		return 137, nil
	}
	return state.ExitCode(), nil
}

// Process returns the specification's process of a container, from its bundle.
func (d *Door) Process(id string) (*specs.Process, error) {
	r, err := d.read(id)
	if err != nil {
		return nil, err
	}
	data, err := oci.ReadBundle(r.Bundle)
	if err != nil {
		return nil, err
	}
	spec, err := oci.DecodeBundle(data)
	if err != nil {
		return nil, err
	}
	return spec.Process, nil
}

// ExampleSpec is the specification that spec writes.
func ExampleSpec() *specs.Spec {
	spec, err := oci.New("", "sh")
	if err != nil {
		return &specs.Spec{Version: SpecVersion}
	}
	spec.Process.Terminal, spec.Root.Readonly, spec.Hostname = true, true, "runc"
	spec.Linux.CgroupsPath = ""
	spec.Linux.Namespaces = append(spec.Linux.Namespaces,
		specs.LinuxNamespace{Type: specs.NetworkNamespace}, specs.LinuxNamespace{Type: specs.IPCNamespace},
		specs.LinuxNamespace{Type: specs.UTSNamespace})
	for i, m := range spec.Mounts {
		if m.Type == "bind" { // the pod's shared memory
			spec.Mounts[i] = specs.Mount{
				Destination: m.Destination, Type: "tmpfs", Source: "shm",
				Options: []string{"nosuid", "noexec", "nodev", "mode=1777", "size=65536k"},
			}
		}
	}
	return spec
}
