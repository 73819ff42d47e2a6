package launcher

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/agent/internal/cgroup"
	"github.com/bulkhead-project/bulkhead/agent/internal/reaper"
)

// Spec is a container's specification for the guest. Device rules are not in it: the caller attaches their program.
type Spec struct {
	Top, Linux  map[string]json.RawMessage
	Annotations map[string]string
}

// Place is the place of a new container. The caller keeps all its parts.
type Place struct {
	ID     string
	Cgroup string // its directory, which Create makes
	Stdio  [3]*os.File
}

// Created is a container that waits for its start.
type Created struct {
	Child     *reaper.Child // its first process
	Container *Container    // for its further processes
	Filter    []byte        // of system calls, compiled
	start     *os.File
}

// Start runs the container's program.
func (c *Created) Start() error {
	if _, err := c.start.Write([]byte{1}); err != nil {
		return fmt.Errorf("start: %w", err)
	}
	return c.start.Close()
}

// Close ends the container if it has not been started.
func (c *Created) Close() { c.start.Close() }

// Create makes a container with its cgroup. onExit is as in reaper.Adopt. After ErrDeclined, the OCI runtime can make the same
// container, or has the better reason for the error.
func (l *Launcher) Create(ctx context.Context, s Spec, p Place, onExit func()) (_ *Created, err error) {
	if l.isLost() {
		return nil, ErrDeclined
	}
	c, err := s.container()
	if err != nil {
		return nil, err
	}
	m := &message{flags: create, names: [4]string{3: p.ID}}
	if err := c.fill(m, s.Top["process"]); err != nil {
		return nil, err
	}
	if err := s.fill(m); err != nil {
		return nil, err
	}
	joined, err := s.namespaces(m)
	defer closeAll(joined)
	if err != nil {
		return nil, err
	}
	message, err := m.marshal()
	if err != nil {
		return nil, err
	}
	group := cgroup.Dir(p.Cgroup)
	defer func() {
		if err == nil {
			return
		}
		// It also ends a process that hangs, which must not go on beside the OCI runtime's.
		if left := group.Remove(ctx); left != nil {
			err = fmt.Errorf("the launcher's attempt (%s) cannot be undone: %w", err.Error(), left)
		}
	}()
	if err := group.Make(s.Linux["resources"]); err != nil {
		return nil, decline("%w", err)
	}
	theirs, start, err := os.Pipe()
	if err != nil {
		return nil, decline("%w", err)
	}
	defer theirs.Close()
	child, err := l.request(message, p.Stdio, p.Cgroup, append([]*os.File{theirs}, joined...), func(c *reaper.Child) error {
		return score(c, s.Top["process"])
	}, onExit)
	if err != nil {
		start.Close()
		// A directory behind a link of /proc may be the VM's, and the OCI runtime would enter it.
		if !errors.Is(err, ErrDeclined) && !errors.Is(err, unix.ELOOP) {
			err = decline("%w", err)
		}
		return nil, err
	}
	return &Created{Child: child, Container: c, Filter: c.filter, start: start}, nil
}

// score sets a process's preference for the OOM killer.
func score(c *reaper.Child, process json.RawMessage) error {
	var p struct {
		Score int `json:"oomScoreAdj"`
	}
	if err := json.Unmarshal(process, &p); err != nil || p.Score == 0 {
		return err
	}
	f, err := os.OpenFile(fmt.Sprintf("/proc/%d/oom_score_adj", c.PID()), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	select {
	case <-c.Done(): // so the file may be another process's
		return unix.ESRCH
	default:
	}
	_, err = f.Write(fmt.Append(nil, p.Score))
	return err
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// compiled is the annotation of a compiled filter of system calls, in base64.
const compiled = "run.oci.seccomp_bpf_data"

// container returns the part of the specification for all processes.
func (s Spec) container() (*Container, error) {
	for name := range s.Annotations {
		if strings.HasPrefix(name, "run.oci.") && name != compiled {
			return nil, decline("annotation %.64q", name)
		}
	}
	filter, err := base64.StdEncoding.DecodeString(s.Annotations[compiled])
	if err != nil {
		return nil, decline("%w", err)
	}
	if raw := s.Linux["seccomp"]; given(raw) && len(filter) == 0 {
		return nil, decline("a filter that is not compiled")
	}
	c := newContainer(s.Top["process"], s.Linux, filter)
	return c, c.declined
}

// given reports whether a value is neither missing nor null.
func given(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }

// allowed are the parts of a specification that fill, namespaces and container know, or that the agent applies.
var allowed = map[string]bool{
	"ociVersion": true, "process": true, "root": true, "hostname": true, "domainname": true, "mounts": true, "linux": true,
	"annotations": true,
}

var allowedLinux = map[string]bool{
	"namespaces": true, "devices": true, "cgroupsPath": true, "resources": true, "maskedPaths": true, "readonlyPaths": true,
	"seccomp": true,
}

// fill adds the container's file systems and names to a message.
func (s Spec) fill(m *message) error {
	for key, raw := range s.Top {
		if !allowed[key] && given(raw) {
			return decline("%.64s", key)
		}
	}
	for key, raw := range s.Linux {
		private := key == "rootfsPropagation" && (string(raw) == `"rprivate"` || string(raw) == `""`)
		if !allowedLinux[key] && !private && given(raw) {
			return decline("linux.%.64s", key)
		}
	}
	var root struct {
		Path     string `json:"path"`
		Readonly bool   `json:"readonly"`
	}
	var mounts []ociMount
	var devices []ociDevice
	for _, part := range []struct {
		raw json.RawMessage
		to  any
	}{
		{s.Top["root"], &root}, {s.Top["hostname"], &m.names[1]}, {s.Top["domainname"], &m.names[2]}, {s.Top["mounts"], &mounts},
		{s.Linux["devices"], &devices}, {s.Linux["maskedPaths"], &m.masked}, {s.Linux["readonlyPaths"], &m.closed},
	} {
		if err := json.Unmarshal(part.raw, part.to); given(part.raw) && err != nil {
			return decline("%w", err)
		}
	}
	if !path.IsAbs(root.Path) {
		return decline("root %.64q", root.Path)
	}
	m.names[0] = root.Path
	if root.Readonly {
		m.flags |= readOnly
	}
	m.flags |= usualDevices
	for _, o := range mounts {
		x, err := o.mount()
		if err != nil {
			return err
		}
		if x.flags&unix.MS_BIND != 0 && path.Clean("/"+o.Destination) == "/dev" { // nothing is added to it
			m.flags &^= usualDevices
		}
		m.mounts = append(m.mounts, x)
	}
	for _, o := range devices {
		n, err := o.node()
		if err != nil {
			return err
		}
		if m.flags&usualDevices != 0 {
			m.nodes = append(m.nodes, n)
		}
	}
	return nil
}

// kinds are the kinds of namespaces.
var kinds = map[string]uint32{
	"mount": unix.CLONE_NEWNS, "pid": unix.CLONE_NEWPID, "ipc": unix.CLONE_NEWIPC, "uts": unix.CLONE_NEWUTS,
	"cgroup": unix.CLONE_NEWCGROUP,
}

// namespaces adds the new namespaces to a message, and opens those to join. The caller closes them, also after an error.
func (s Spec) namespaces(m *message) (joined []*os.File, err error) {
	var all []struct{ Type, Path string }
	if err := json.Unmarshal(s.Linux["namespaces"], &all); err != nil {
		return nil, decline("%w", err)
	}
	var seen uint32
	for _, n := range all {
		kind := kinds[n.Type]
		if kind == 0 || seen&kind != 0 || n.Path != "" && (kind == unix.CLONE_NEWNS || kind == unix.CLONE_NEWCGROUP) {
			return joined, decline("the namespace of type %.64q", n.Type)
		}
		seen |= kind
		if n.Path == "" {
			m.namespaces |= kind
			continue
		}
		f, err := os.Open(n.Path)
		if err != nil {
			return joined, decline("%w", err)
		}
		joined = append(joined, f)
	}
	if m.namespaces&unix.CLONE_NEWNS == 0 {
		return joined, decline("no namespace of mounts")
	}
	return joined, nil
}
