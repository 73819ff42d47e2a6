package oci

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
	enginev1 "github.com/bulkhead-project/bulkhead/api/engine/v1"
	"github.com/bulkhead-project/bulkhead/door/oci/staging"
	"github.com/bulkhead-project/bulkhead/door/oci/surrogate"
	"github.com/bulkhead-project/bulkhead/internal/fault"
	"github.com/bulkhead-project/bulkhead/internal/undo"
	"github.com/bulkhead-project/bulkhead/internal/unit"
	"github.com/bulkhead-project/bulkhead/network/adopt/inside"
	"github.com/bulkhead-project/bulkhead/oci"
	"github.com/bulkhead-project/bulkhead/oci/convert"
	"github.com/bulkhead-project/bulkhead/sandbox/sizing"
)

// CreateOptions are a request for a container.
type CreateOptions struct {
	ID, Bundle string
	// PIDFile gets the surrogate's pid; empty means none.
	PIDFile string
	// ConsoleSocket is the socket that gets the terminal of a process with one.
	ConsoleSocket string
	// Streams are the standard streams of a process without a terminal.
	Streams [3]*os.File
	// Plain gives a process with a terminal the Streams too: the input and the output of a terminal that exists only in
	// the guest. There is no ConsoleSocket then, and ResizeProcess sets its size.
	Plain bool
	// VCPUs and MemoryMiB are the size of a VM for which the bundle states none; zeros mean the usual size.
	VCPUs, MemoryMiB int
}

// defaults returns the size of a VM for which the bundle states none.
func (o CreateOptions) defaults() sizing.Demand {
	vcpus, memory := o.VCPUs, o.MemoryMiB
	if vcpus == 0 {
		vcpus = min(convert.DefaultVCPUs, runtime.NumCPU())
	}
	if memory == 0 {
		memory = convert.DefaultMemoryMiB
	}
	return convert.SizeOf(vcpus, memory)
}

// createWait bounds the creation of a container, with the start of its VM. Hooks have no other bound.
const createWait = 6 * time.Minute

// Create creates a container and returns its surrogate's pid. A container that fails leaves nothing.
func (d *Door) Create(ctx context.Context, o CreateOptions) (pid int, err error) {
	ctx, cancel := context.WithTimeout(ctx, createWait)
	defer cancel()
	if err := checkID(o.ID); err != nil {
		return 0, err
	}
	if o.Bundle, err = filepath.Abs(o.Bundle); err != nil {
		return 0, err
	}
	c := &creation{door: d, o: o}
	defer c.undo.OnError(ctx, &err)
	if err := c.convert(ctx); err != nil {
		return 0, err
	}
	if err := c.run(ctx); err != nil {
		return 0, err
	}
	return c.record.Surrogate.PID, nil
}

// convert converts the bundle, and finds the pod that the container joins.
func (c *creation) convert(ctx context.Context) (err error) {
	c.plan, err = convert.Load(convert.Options{
		ID: c.o.ID, Bundle: c.o.Bundle, Strict: c.door.o.Strict, Defaults: c.o.defaults(),
		Join: func(n convert.Namespaces) (*convert.Join, error) { return c.join(ctx, n) },
	})
	if errors.Is(err, os.ErrNotExist) && !exists(filepath.Join(c.o.Bundle, "config.json")) && exists(c.o.Bundle) {
		return errors.New("JSON specification file config.json not found")
	}
	if err != nil {
		return err
	}
	if terminal := c.plan.Guest.Process.Terminal; !terminal && c.o.ConsoleSocket != "" {
		return errors.New("cannot use console socket if runc will not detach or allocate tty")
	}
	if err := refuse(c.plan); err != nil {
		return err
	}
	if n := &c.plan.Namespaces.Network; n.Kind == convert.ByPath && ours(n.Path) {
		*n = convert.Namespace{} // docker names the host's by a path
	}
	c.door.log(c.o.ID, c.plan.Ignored)
	if c.plan.Kind != oci.Container || c.joined != nil {
		return nil
	}
	err = c.door.ask(ctx, func(e enginev1.EngineClient) error {
		found, err := e.Adopt(ctx, &enginev1.AdoptRequest{Door: doorName, Key: c.door.key(c.plan.SandboxID)})
		c.joined = found.GetPod()
		return err
	})
	if err != nil {
		return fmt.Errorf("find the pod %.80s: %w", c.plan.SandboxID, plain(err))
	}
	return nil
}

// exists reports whether there is a file at a path.
func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// log logs the settings that have no effect.
func (d *Door) log(id string, ignored []convert.Note) {
	for _, note := range ignored {
		d.o.Logger.Debug(note.String(), "container", id)
	}
}

// ours reports whether a path names the caller's own network namespace.
func ours(path string) bool {
	its, err := identify(path)
	own, ownErr := identify("/proc/self/ns/net")
	return err == nil && ownErr == nil && its == own
}

// creation is a container that is being created.
type creation struct {
	door   *Door
	o      CreateOptions
	plan   *convert.Plan
	record *record
	undo   undo.Stack

	helper *helper
	joined *enginev1.Pod // the pod that the container joins, or nil
	cgroup string        // the client's, as a path from the top of the hierarchy
	scope  *unit.Scope   // systemd's unit for it; nil for none
}

// run runs all steps. Each registers its undo first.
func (c *creation) run(ctx context.Context) error {
	if err := c.reserve(ctx); err != nil {
		return err
	}
	fault.Point("oci.reserved")
	if err := c.group(ctx); err != nil {
		return err
	}
	if err := c.stand(ctx); err != nil {
		return err
	}
	fault.Point("oci.surrogate")
	if err := c.stage(ctx); err != nil {
		return err
	}
	// As under runc, these hooks also run after a failed creation.
	c.undo.Push("poststop", func(ctx context.Context) error {
		c.record.poststop(ctx, c.door.o.Logger)
		return nil
	})
	for _, point := range []containerv1.Point{containerv1.Prestart, containerv1.CreateRuntime} {
		if err := c.record.hooks(ctx, c.plan.Hooks, point, specs.StateCreating); err != nil {
			return err
		}
	}
	if err := c.pod(ctx); err != nil {
		return err
	}
	fault.Point("oci.pod")
	if err := c.fill(ctx); err != nil {
		return err
	}
	if err := c.record.hooks(ctx, c.plan.Hooks, containerv1.CreateContainer, specs.StateCreating); err != nil {
		return err
	}
	fault.Point("oci.attached")
	return c.finish(ctx)
}

// fill puts the container into the pod's VM, and connects the surrogate.
func (c *creation) fill(ctx context.Context) error {
	if c.sandbox() {
		return c.hold(ctx)
	}
	if err := c.container(ctx); err != nil {
		return err
	}
	fault.Point("oci.container")
	return c.attach(ctx)
}

// reserve makes the container's directory with its first record.
func (c *creation) reserve(context.Context) error {
	if err := c.door.ensureRoot(); err != nil {
		return fmt.Errorf("make the directory of containers: %w", err)
	}
	dir := filepath.Join(c.door.o.Root, c.o.ID)
	err := os.Mkdir(dir, 0o700)
	if errors.Is(err, os.ErrExist) {
		return ErrExists
	}
	if err != nil {
		return fmt.Errorf("make the container's directory: %w", err)
	}
	c.undo.Push("directory", func(context.Context) error { return os.RemoveAll(dir) })
	spec := c.plan.Guest
	c.record = &record{
		Version: recordVersion, ID: c.o.ID, Bundle: c.o.Bundle, Rootfs: c.plan.Trees[0].Source, OCIVersion: spec.Version,
		Created: time.Now().UTC(), Annotations: c.plan.Annotations, Terminal: spec.Process.Terminal, Hooks: c.plan.Hooks,
		Pod: podRecord{Key: c.door.key(c.o.ID), Own: c.joined == nil}, Sandbox: c.sandbox(),
	}
	if c.joined != nil {
		c.record.Pod.ID, c.record.Pod.Dir = c.joined.GetId(), c.joined.GetDirectory()
	}
	return c.door.write(c.record)
}

// stand starts the surrogate.
func (c *creation) stand(ctx context.Context) error {
	// The surrogate's Stage replaces it. Without a file, the surrogate's runtime would use the number.
	place, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	defer place.Close()
	o := helperOptions{
		name: c.o.ID, streams: c.o.Streams, terminal: c.terminal(), descriptor: []*os.File{place},
		users: users{c.plan.UIDs, c.plan.GIDs, c.plan.Namespaces.User.Path},
	}
	if c.scope == nil {
		o.cgroup = c.record.Cgroup
	}
	if c.joined == nil {
		serve, clients, err := inside.Pair()
		if err != nil {
			return err
		}
		defer serve.Close()
		defer clients.Close()
		o.descriptor, o.network = append(o.descriptor, serve, clients), true
	}
	o.new, o.join = namespaces(c.plan.Namespaces)
	if c.plan.Namespaces.UTS.Kind == convert.Own {
		o.hostname = c.plan.Hostname
	}
	if o.terminal {
		slave, err := openConsole(c.o.ConsoleSocket, c.plan.Guest.Process.ConsoleSize)
		if err != nil {
			return err
		}
		defer slave.Close()
		o.streams = [3]*os.File{slave, slave, slave}
	}
	h, err := startHelper(o)
	if err != nil {
		return err
	}
	c.undo.Push("surrogate", h.kill)
	c.helper, c.record.Surrogate = h, h.id
	if err := c.door.write(c.record); err != nil {
		return err
	}
	return c.enterScope(ctx)
}

// stage gives the container's directories and files of the host to the surrogate.
func (c *creation) stage(ctx context.Context) error {
	if c.sandbox() {
		return nil
	}
	if err := c.helper.order(ctx, surrogate.Stage); err != nil {
		return err
	}
	namespace, err := c.helper.id.File(surrogate.StagingFD)
	if err != nil {
		return fmt.Errorf("find the staging namespace: %w", err)
	}
	defer namespace.Close()
	return staging.Fill(namespace, c.o.Bundle, c.plan.Trees, c.plan.MountPoints)
}

// terminal reports whether the surrogate has the host's end of a terminal.
func (c *creation) terminal() bool { return c.record.Terminal && !c.o.Plain }

// namespaces returns the flags of new namespaces and the existing ones for a surrogate. Its mount namespace comes later.
func namespaces(n convert.Namespaces) (flags uintptr, join []joined) {
	for _, one := range []struct {
		of   convert.Namespace
		kind int
	}{{n.Network, unix.CLONE_NEWNET}, {n.IPC, unix.CLONE_NEWIPC}, {n.UTS, unix.CLONE_NEWUTS}, {n.PID, unix.CLONE_NEWPID}} {
		switch one.of.Kind {
		case convert.Own:
			flags |= uintptr(one.kind)
		case convert.ByPath:
			join = append(join, joined{one.of.Path, one.kind})
		}
	}
	return flags, join
}

// pod starts the container's VM, unless the container joins one.
func (c *creation) pod(ctx context.Context) error {
	if c.joined != nil {
		return nil
	}
	r := c.door.startRequest(c.plan)
	if strings.HasPrefix(c.cgroup, "/") {
		r.CgroupParent = c.cgroup
	}
	card, err := c.network(r)
	if err != nil {
		return err
	}
	if card != nil {
		defer card.Close()
	}
	c.record.Pod.Network = r.Network
	if n := c.plan.Namespaces.Network; n.Kind == convert.ByPath {
		c.record.Pod.Namespace = n.Path
		c.undo.Push("network", func(context.Context) error { return c.record.leave() })
	}
	c.undo.Push("pod", func(ctx context.Context) error { return c.door.remove(ctx, r.Key, "") })
	if r.Record, err = c.podRecord(); err != nil {
		return err
	}
	err = c.door.ask(ctx, func(e enginev1.EngineClient) error {
		started, err := e.Start(ctx, r)
		c.record.Pod.ID, c.record.Pod.Dir = started.GetPod().GetId(), started.GetPod().GetDirectory()
		return err
	})
	if err != nil {
		return fmt.Errorf("start the VM: %w", plain(err))
	}
	return c.door.write(c.record)
}

// container creates the container in the VM.
func (c *creation) container(ctx context.Context) error {
	spec, err := json.Marshal(c.guest())
	if err != nil {
		return err
	}
	names, err := json.Marshal(knownOf(c.record.Surrogate.PID))
	if err != nil {
		return err
	}
	if !c.record.Pod.Own {
		c.undo.Push("container", func(ctx context.Context) error { return c.door.removeContainer(ctx, c.record) })
	}
	err = c.door.ask(ctx, func(e enginev1.EngineClient) error {
		made, err := e.CreateContainer(ctx, &enginev1.CreateContainerRequest{
			Door: doorName, Id: c.record.Pod.ID, Key: c.record.Pod.Key, Name: c.o.ID, Spec: spec, Record: names,
			Holder: holder(c.helper.id), StagingFd: surrogate.StagingFD, Terminal: c.record.Terminal, Stdin: true,
			SetId: staging.Sheltered(c.record.Rootfs),
		})
		c.record.Container = made.GetContainer()
		return err
	})
	return plain(err)
}

// guest returns the specification for the guest, with its hooks.
func (c *creation) guest() *specs.Spec {
	spec := *c.plan.Guest
	if len(c.plan.StartContainer) > 0 {
		spec.Hooks = &specs.Hooks{}
	}
	for _, h := range c.plan.StartContainer {
		hook := specs.Hook{Path: h.Path, Args: h.Args, Env: h.Env}
		if seconds := int(h.Timeout / time.Second); seconds > 0 {
			hook.Timeout = &seconds
		}
		spec.Hooks.StartContainer = append(spec.Hooks.StartContainer, hook)
	}
	return &spec
}

// attach connects the surrogate to the container, and gives it the container's look.
func (c *creation) attach(ctx context.Context) error {
	t := surrogate.Target{
		Dir: c.record.Pod.Dir, Container: c.record.Container, Terminal: c.terminal(), Stdin: true,
	}
	if err := c.helper.order(ctx, surrogate.Attach, t.Fields()...); err != nil {
		return err
	}
	return c.helper.order(ctx, surrogate.View, destinations(c.plan)...)
}

// destinations are the places of staged trees and of the guest's own file systems, in the order of the mounts.
func destinations(p *convert.Plan) (all []string) {
	for _, t := range p.Trees[1:] {
		all = append(all, t.Destination)
	}
	return all
}

// finish makes the container the client's.
func (c *creation) finish(ctx context.Context) error {
	if err := c.door.write(c.record); err != nil {
		return err
	}
	if err := writePID(c.o.PIDFile, c.record.Surrogate.PID); err != nil {
		return err
	}
	return c.helper.release(ctx)
}

// writePID writes a pid file.
func writePID(path string, pid int) error {
	if path == "" {
		return nil
	}
	if err := os.WriteFile(path, []byte(strconv.Itoa(pid)), 0o644); err != nil {
		return fmt.Errorf("write the pid file: %w", err)
	}
	return nil
}
