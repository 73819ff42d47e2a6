package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/agent/internal/blockdev"
	"github.com/bulkhead-project/bulkhead/agent/internal/boot"
	"github.com/bulkhead-project/bulkhead/agent/internal/cgroup"
	"github.com/bulkhead-project/bulkhead/agent/internal/devices"
	"github.com/bulkhead-project/bulkhead/agent/internal/limits"
	"github.com/bulkhead-project/bulkhead/agent/internal/pod"
	"github.com/bulkhead-project/bulkhead/agent/internal/sched"
	"github.com/bulkhead-project/bulkhead/agent/internal/scratch"
	"github.com/bulkhead-project/bulkhead/agent/internal/spec"
	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
	"github.com/bulkhead-project/bulkhead/internal/guesttree"
)

// opTimeout bounds the agent's own operations on a container. It is long because a VM is slow when many run under
// emulation.
const opTimeout = 2 * time.Minute

// container is a created container. Its first process is procs[""].
type container struct {
	id     string
	dir    string // /run/bulkhead/containers/<id>
	root   string // the mounted root
	upper  string // its writable layer, on the scratch disk
	last   string // its termination message, kept outside its /dev
	lastAt string // where that file is also mounted, if anywhere
	cgroup cgroup.Dir
	binds  []string // mounts of parts of volumes
	// releases release its disks.
	releases []func()
	// giveBack, if set, releases its huge pages.
	giveBack func() error
	// sharedPID is set if the container's processes do not end with its first.
	sharedPID bool
	verbatim  bool       // see agentv1.Verbatim
	user      spec.Named // user of its first process
	rlimits   json.RawMessage
	schedule  sched.Attributes // of its first process

	// op is held by operations that change the container: create, start, pause, resume, update, delete. No operation
	// waits for the container's processes under it.
	op sync.Mutex

	mu      sync.Mutex // guards the following; never held while waiting
	started bool       // both also change only under op
	paused  bool
	procs   map[string]*process
	oom     uint64 // kills already reported with exits
}

func (a *Agent) container(id string) (*container, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	c := a.containers[id]
	if c == nil {
		return nil, fmt.Errorf("container %.128q: %w", id, errdefs.ErrNotFound)
	}
	return c, nil
}

// lock returns a container with op held. A container that another call removes before that is not found, even if a new
// container has its id by then.
func (a *Agent) lock(id string) (*container, error) {
	c, err := a.container(id)
	if err != nil {
		return nil, err
	}
	c.op.Lock()
	if now, _ := a.container(id); now != c {
		c.op.Unlock()
		return nil, fmt.Errorf("container %s has been removed: %w", id, errdefs.ErrNotFound)
	}
	return c, nil
}

func (a *Agent) create(ctx context.Context, r agentv1.Create) (agentv1.Created, error) {
	if !containerv1.ValidID(r.Container) {
		return agentv1.Created{}, fmt.Errorf("container id %.128q: %w", r.Container, errdefs.ErrInvalidArgument)
	}
	c := &container{
		id: r.Container, dir: filepath.Join(containerDir, r.Container),
		cgroup: cgroup.Dir(cgroup.Mount + boot.Pods + "/" + r.Container),
		procs:  map[string]*process{},
	}
	c.op.Lock()
	defer c.op.Unlock()
	a.mu.Lock()
	if a.containers[c.id] != nil {
		a.mu.Unlock()
		return agentv1.Created{}, fmt.Errorf("container %s: %w", c.id, errdefs.ErrAlreadyExists)
	}
	if err := a.pod.Enter(); err != nil {
		a.mu.Unlock()
		return agentv1.Created{}, err
	}
	a.containers[c.id] = c
	a.mu.Unlock()

	p, err := a.build(ctx, c, r)
	if err != nil {
		err = fmt.Errorf("create container %s: %w", c.id, err)
		if c.verbatim && (errors.Is(err, agentv1.ErrNoCommand) || errors.Is(err, agentv1.ErrNotExec)) {
			err = spec.Invalid(err) // an OCI client's create fails, and not its start
		}
		if undo := a.remove(c); undo != nil {
			Log("undo: %v", undo)
		}
		return agentv1.Created{}, err
	}
	return agentv1.Created{PID: p.pid, User: c.user.Is}, nil
}

func (a *Agent) build(ctx context.Context, c *container, r agentv1.Create) (*process, error) {
	lower, live, err := a.lower(ctx, c, r)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Join(c.dir, "rootfs"), 0o711); err != nil {
		return nil, err
	}
	end := agentv1.Begin(ctx, agentv1.PartSpec)
	s, err := spec.Parse(r.Spec)
	if err != nil {
		return nil, err
	}
	c.verbatim = s.Verbatim
	room, err := s.Storage()
	if err != nil {
		return nil, err
	}
	end()
	end = agentv1.Begin(ctx, agentv1.PartRoot)
	if err := c.mountRoot(a.space, lower, live, room); err != nil {
		return nil, err
	}
	end()
	end = agentv1.Begin(ctx, agentv1.PartSpec)
	files := pod.Files()
	if err := c.makeLast(); err != nil {
		return nil, err
	}
	files[terminationLog] = c.last
	var program *os.File // of device rules
	defer func() {
		if program != nil {
			program.Close()
		}
	}()
	var joined []io.Closer // namespaces, held open until the container has joined them
	defer func() {
		for _, f := range joined {
			f.Close()
		}
	}()
	err = s.Adjust(spec.VM{
		Root: c.root, Cgroup: boot.Pods + "/" + c.id, Shm: pod.ShmDir, Files: files, Last: c.last,
		Volume: func(v containerv1.Mount) (string, error) { return a.volume(ctx, c, v) },
		Place:  func(at string) (string, error) { return spec.PlaceIn(c.root, at) },
		Block:  func(b containerv1.Block) (uint32, uint32, error) { return a.deviceOf(c, b) }, Guest: a.guest(c),
		Join: func(kind, target string) (string, error) {
			f, err := a.namespace(kind, target)
			if err != nil {
				return "", err
			}
			joined = append(joined, f)
			return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), f.Fd()), nil
		},
		File: a.files.Write, Devices: devices.All, HasDevice: devices.Has, Ruled: func(rules string) bool {
			var err error
			if program, err = a.programs.Program(rules); err != nil {
				Log("crun makes the device program: %v", err)
			}
			return err == nil
		},
	}, r.Terminal)
	if err != nil {
		return nil, err
	}
	c.lastAt = s.LastAt
	c.sharedPID = s.SharedPID
	if c.user, err = s.User(); err != nil {
		return nil, err
	}
	if c.rlimits, err = s.Rlimits(); err != nil {
		return nil, err
	}
	if c.schedule, err = sched.Of(s.Process()); err != nil {
		return nil, err
	}
	if c.giveBack, err = a.limits.HugePages(s.HugePages); err != nil {
		return nil, err
	}
	if err := a.limits.Sysctls(s.Sysctls); err != nil {
		return nil, err
	}
	if err := a.limits.GrowTasks(); err != nil {
		return nil, err
	}
	end()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), opTimeout)
	defer cancel()
	p, err := a.launch(ctx, c, launch{
		spec: s, ruled: program != nil || s.DeviceRules == "", terminal: r.Terminal, stdin: r.Stdin, stdinOnce: r.StdinOnce,
	})
	if err != nil {
		return nil, s.Explain(err)
	}
	if err := c.schedule.Apply(p.pid, false); err != nil {
		return nil, err
	}
	if err := limits.Burst(c.cgroup, s.CPUBurst); err != nil {
		return nil, err
	}
	if program != nil { // before its processes run
		if err := devices.Attach(program, c.cgroup); err != nil {
			return nil, err
		}
	}
	if err := limits.Tasks(c.cgroup); err != nil {
		return nil, err
	}
	return p, a.ooms.Add(c.id, c.cgroup)
}

// guest returns what a process of the container takes from the guest.
func (a *Agent) guest(c *container) spec.Guest {
	return spec.Guest{Users: rootOf(c.root), Known: c.user, Hostname: a.pod.Hostname(), Verbatim: c.verbatim, Rlimits: c.rlimits}
}

// lower prepares the source of the container's root and returns its path. live means that the container writes to the
// source itself, without a layer.
func (a *Agent) lower(ctx context.Context, c *container, r agentv1.Create) (at string, live bool, err error) {
	root, err := r.Root()
	if err == nil {
		err = containerv1.Check(containerv1.Container{Root: root})
	}
	if err != nil {
		return "", false, spec.Refused(err)
	}
	switch root := root.(type) {
	case containerv1.Image:
		at, err = a.imageAt(c, root.ID)
		return at, false, err
	case containerv1.Share:
		at, err = a.shareAt(root.Name)
		return at, true, err
	case containerv1.Block:
		at, err = a.blockAt(ctx, c, root, containerv1.Mount{})
		return at, true, err
	default:
		return "", false, fmt.Errorf("root file system of type %T: %w", root, errdefs.ErrNotImplemented)
	}
}

// namespace opens a namespace ("pid", "ipc" or "uts") of another container, which must be running, or the pod's own PID
// namespace if target is empty.
func (a *Agent) namespace(kind, target string) (*os.File, error) {
	if target == "" {
		return a.holder.Namespace()
	}
	_, first, err := a.process(agentv1.Process{Container: target})
	if err != nil {
		return nil, err
	}
	f, err := os.Open(fmt.Sprintf("/proc/%d/ns/%s", first.pid, kind))
	if err != nil && !first.hasExited() {
		return nil, fmt.Errorf("%s namespace of container %.128s: %w", kind, target, err)
	}
	// Check after opening: the PID may have been reused.
	if first.hasExited() {
		f.Close()
		return nil, fmt.Errorf("container %.128s has ended: %w", target, agentv1.ErrBusy)
	}
	return f, nil
}

// terminationLog is the path of a container's termination message, unless its specification mounts another file there.
const terminationLog = "/dev/termination-log"

// makeLast creates the termination message file, which any user may write.
func (c *container) makeLast() error {
	if err := os.WriteFile(c.last, nil, 0o666); err != nil {
		return err
	}
	return os.Chmod(c.last, 0o666)
}

// mountRoot mounts the container's root: its live root, or a writable layer over its image. room bounds the layer in
// bytes; 0 means no limit.
func (c *container) mountRoot(space *scratch.Space, lower string, live bool, room int64) error {
	upper, release, err := space.Layer(c.id, room)
	if err != nil {
		return err
	}
	c.releases = append(c.releases, release)
	c.root = filepath.Join(c.dir, "rootfs")
	c.upper = upper
	c.last = filepath.Join(c.upper, "termination-log")
	for _, name := range []string{"upper", "work"} {
		if err := os.MkdirAll(filepath.Join(c.upper, name), 0o755); err != nil {
			return err
		}
	}
	if live {
		return bindRoot(lower, c.root)
	}
	options := fmt.Sprintf("lowerdir=%s,upperdir=%s/upper,workdir=%s/work", lower, c.upper, c.upper)
	if err := unix.Mount("overlay", c.root, "overlay", 0, options); err != nil {
		return fmt.Errorf("overlay: %w", err)
	}
	return nil
}

// remove removes all parts of a container, also of one that was only partly created. The caller holds op. After an
// error it can be called again.
func (a *Agent) remove(c *container) error {
	ctx, cancel := context.WithTimeout(context.Background(), opTimeout)
	defer cancel()
	if err := c.cgroup.Remove(ctx); err != nil {
		return fmt.Errorf("remove container %s: %w", c.id, err)
	}
	c.mu.Lock()
	procs := c.procs
	c.procs = map[string]*process{}
	c.mu.Unlock()
	for _, p := range procs {
		p.close()
	}
	if c.root != "" {
		if err := blockdev.Unmount(ctx, c.root); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("remove container %s: unmount its root: %w", c.id, err)
		}
	}
	// Unmount before removing the directory, which would delete files through the mounts.
	if err := c.unbind(); err != nil {
		return fmt.Errorf("remove container %s: %w", c.id, err)
	}
	err := errors.Join(a.crun.Forget(c.id), os.RemoveAll(c.dir))
	if c.upper != "" {
		err = errors.Join(err, guesttree.Remove(context.Background(), c.upper)) // without a time limit
	}
	if err != nil {
		return fmt.Errorf("remove container %s: %w", c.id, err)
	}
	if c.giveBack != nil {
		if err := c.giveBack(); err != nil {
			return fmt.Errorf("remove container %s: %w", c.id, err)
		}
		c.giveBack = nil
	}
	for _, release := range c.releases {
		release()
	}
	c.releases = nil
	a.ooms.Remove(c.id)
	a.mu.Lock()
	delete(a.containers, c.id)
	a.mu.Unlock()
	a.pod.Leave()
	return nil
}

func (a *Agent) start(_ context.Context, r agentv1.Process) error {
	if r.Exec != "" {
		return fmt.Errorf("an exec'd process runs without a start: %w", errdefs.ErrInvalidArgument)
	}
	c, err := a.lock(r.Container)
	if err != nil {
		return err
	}
	defer c.op.Unlock()
	if c.started {
		return fmt.Errorf("container %s is already started: %w", c.id, agentv1.ErrBusy)
	}
	if err := a.crun.Start(c.id); err != nil {
		return fmt.Errorf("container %s: %w", c.id, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.started = true
	return nil
}

// freeze pauses or resumes a container.
func (a *Agent) freeze(ctx context.Context, id string, frozen bool) error {
	c, err := a.lock(id)
	if err != nil {
		return err
	}
	defer c.op.Unlock()
	if frozen && !c.started {
		return fmt.Errorf("container %s is not started: %w", id, agentv1.ErrBusy)
	}
	ctx, cancel := context.WithTimeout(ctx, opTimeout)
	defer cancel()
	if err := c.cgroup.Freeze(ctx, frozen); err != nil {
		if frozen {
			err = errors.Join(err, c.cgroup.Thaw())
		}
		return fmt.Errorf("container %s: freeze=%t: %w", id, frozen, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.paused = frozen
	return nil
}

func (a *Agent) update(ctx context.Context, r agentv1.Update) error {
	if r.Container == "" {
		return limits.Pod(r.Limits)
	}
	c, err := a.lock(r.Container)
	if err != nil {
		return err
	}
	defer c.op.Unlock()
	dir, err := os.MkdirTemp(c.dir, "update")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "resources.json")
	if err := os.WriteFile(file, r.Resources, 0o600); err != nil {
		return err
	}
	burst, err := spec.CPUBurst(r.Resources)
	if err != nil {
		return fmt.Errorf("container %s: %w", c.id, err)
	}
	if burst != nil { // a burst must not exceed the quota at any time
		if err := limits.Burst(c.cgroup, new(uint64)); err != nil {
			return fmt.Errorf("container %s: %w", c.id, err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, opTimeout)
	defer cancel()
	if err := a.crun.Update(ctx, c.id, file, dir); err != nil {
		return fmt.Errorf("container %s: %w", c.id, err)
	}
	// The new limit of tasks may be higher than the VM's.
	if err := errors.Join(limits.Burst(c.cgroup, burst), limits.Tasks(c.cgroup)); err != nil {
		return fmt.Errorf("container %s: %w", c.id, err)
	}
	return nil
}
