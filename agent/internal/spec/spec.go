// Package spec converts the host's OCI specification to one for the guest. It removes settings of the whole pod,
// because the VM has them already, and looks up the user in the image. Unknown fields pass through unchanged.
//
// The container has its own mounts. It shares the VM's network, and each other namespace that its specification does
// not list.
package spec

import (
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
)

// object is a JSON object with mostly unparsed fields.
type object map[string]json.RawMessage

func (o object) set(key string, v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode %s: %w", key, err)
	}
	o[key] = raw
	return nil
}

func (o object) get(key string, v any) error {
	raw, ok := o[key]
	if !ok {
		return nil
	}
	if err := json.Unmarshal(raw, v); err != nil {
		return fmt.Errorf("%s: %w: %w", key, errdefs.ErrInvalidArgument, err)
	}
	return nil
}

// append adds the elements of a slice to the array at key.
func (o object) append(key string, more any) error {
	var have, added []json.RawMessage
	if err := o.get(key, &have); err != nil {
		return err
	}
	raw, err := json.Marshal(more)
	if err == nil {
		err = json.Unmarshal(raw, &added)
	}
	if err != nil {
		return fmt.Errorf("encode %s: %w", key, err)
	}
	return o.set(key, append(have, added...))
}

// Mount is an OCI mount.
type Mount struct {
	Destination string   `json:"destination"`
	Type        string   `json:"type,omitempty"`
	Source      string   `json:"source,omitempty"`
	Options     []string `json:"options,omitempty"`
	// door marks a file that a door has written.
	door bool
}

func (m Mount) isBind() bool {
	return m.Type == "bind" || slices.Contains(m.Options, "bind") || slices.Contains(m.Options, "rbind")
}

// VM is the set of resources that the guest provides for its containers.
type VM struct {
	Root   string // path of the mounted root file system
	Cgroup string // path below the cgroup mount
	Shm    string // the pod's shared memory
	Last   string // the file of the container's termination message
	// Join opens the namespace of this type of the container of that id, or the pod's PID namespace for an empty id,
	// and returns its path.
	Join func(kind, container string) (string, error)
	// Files are bind mounts by destination, unless the specification mounts something there.
	Files map[string]string
	// File writes a file and returns its path; equal files for one destination are shared.
	File func(destination, content string) (string, error)
	// Devices returns all devices of the VM, for a container that gets them.
	Devices func() ([]Device, error)
	// HasDevice reports whether the VM has a device of a type ("c" or "b") and number.
	HasDevice func(kind string, major, minor int64) bool
	// Ruled reports whether the container's cgroup gets its device rules without crun.
	Ruled func(rules string) bool
	// Volume prepares a Dir, Files, an Image, a Share or a Block and returns the path of the mount's source.
	Volume func(containerv1.Mount) (string, error)
	// Place returns the resolved place of a mount's destination; nil means unchanged.
	Place func(destination string) (string, error)
	// Block returns the device number of a Block without a file system.
	Block func(containerv1.Block) (major, minor uint32, err error)
	// Guest is for the container's first process.
	Guest Guest
}

// Spec is a specification in conversion.
type Spec struct {
	top    object
	within object // top's "linux", once the specification is adjusted
	own    func(namespace string) bool
	notes  map[string]string // the annotations
	// username is the user in the host's specification.
	username string
	// Verbatim is set if the container has only the contents of its specification (agentv1.Verbatim).
	Verbatim bool
	Sysctls  map[string]string // removed, because they are for the whole pod
	// LastAt is the destination of the termination message file, if the specification mounts it.
	LastAt string
	// HugePages are the container's limits in bytes, by the cgroup's names of page sizes.
	HugePages map[string]uint64
	// SharedPID is set if the container's processes do not end with its first.
	SharedPID bool
	// CPUBurst is the container's CPU burst in microseconds; nil if it is not set.
	CPUBurst *uint64
	// DeviceRules are the device rules of the container's cgroup, as in the host's specification; empty is none. They
	// are removed from the specification if VM.Ruled returns true.
	DeviceRules string
}

// Parse reads the host's specification.
func Parse(raw json.RawMessage) (*Spec, error) {
	s := &Spec{}
	if err := json.Unmarshal(raw, &s.top); err != nil {
		return nil, fmt.Errorf("specification: %w: %w", errdefs.ErrInvalidArgument, err)
	}
	if s.top["process"] == nil {
		return nil, fmt.Errorf("specification without process: %w", errdefs.ErrInvalidArgument)
	}
	if err := s.top.get("annotations", &s.notes); err != nil {
		return nil, err
	}
	s.Verbatim = s.notes[agentv1.Verbatim] == "true"
	return s, nil
}

// Storage returns the limit of the container's writable layer in bytes; 0 means no limit.
func (s *Spec) Storage() (int64, error) {
	text := s.notes[agentv1.StorageLimit]
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n <= 0 {
		return 0, fmt.Errorf("annotation %s %.32q: %w", agentv1.StorageLimit, text, errdefs.ErrInvalidArgument)
	}
	return n, nil
}

// Adjust converts the specification for the guest. It may be called once.
func (s *Spec) Adjust(m VM, terminal bool) error {
	if err := s.hooks(); err != nil {
		return err
	}
	s.top["ociVersion"] = json.RawMessage(`"1.0.2"`) // the latest that crun 1.8 supports
	root := struct {
		Path     string `json:"path"`
		Readonly bool   `json:"readonly,omitempty"`
	}{}
	if err := s.top.get("root", &root); err != nil {
		return err
	}
	root.Path = m.Root
	if err := s.top.set("root", root); err != nil {
		return err
	}
	if err := s.blocks(m); err != nil {
		return err
	}
	if err := s.linux(m); err != nil {
		return err
	}
	if err := s.mounts(m, root.Readonly); err != nil {
		return err
	}
	var named struct {
		User struct{ Username string }
	}
	if err := s.top.get("process", &named); err != nil {
		return err
	}
	if m.Guest.Verbatim = s.Verbatim; !s.Verbatim {
		s.username = named.User.Username
	}
	process, err := Process(s.top["process"], m.Guest, terminal)
	if err != nil {
		return err
	}
	s.top["process"] = process
	return s.annotations()
}

// crunFilter is crun's annotation for a compiled filter of system calls.
const crunFilter = "run.oci.seccomp_bpf_data"

// annotations removes the annotations for the agent and for crun, which belong to no other runtime. It hands the compiled
// filter of system calls on to crun.
func (s *Spec) annotations() error {
	filter := s.notes[agentv1.SeccompFilter]
	if filter == "" && !s.Verbatim {
		return nil
	}
	maps.DeleteFunc(s.notes, func(name, _ string) bool {
		ours := []string{agentv1.AllDevices, agentv1.StorageLimit, agentv1.Verbatim, agentv1.SeccompFilter}
		return strings.HasPrefix(name, "run.oci.") || slices.Contains(ours, name)
	})
	if filter != "" {
		s.notes[crunFilter] = filter
	}
	return s.top.set("annotations", s.notes)
}

// Parts returns the specification in parts: the whole, its Linux part, and its annotations. The caller must not change them.
func (s *Spec) Parts() (top, linux map[string]json.RawMessage, annotations map[string]string) {
	return s.top, s.within, s.notes
}

// Encode returns the specification for crun.
func (s *Spec) Encode() ([]byte, error) { return json.Marshal(s.top) }

// EncodeForExec returns the part of the specification that crun needs to run another process in the container. It omits
// the container's setup, and its seccomp filter, which crun has kept. crun parses it for each such process.
func (s *Spec) EncodeForExec() ([]byte, error) {
	linux, kept := object{}, object{}
	for _, key := range []string{"namespaces", "personality", "seccomp"} {
		if raw, ok := s.within[key]; ok {
			linux[key] = raw
		}
	}
	var seccomp object
	if err := linux.get("seccomp", &seccomp); err != nil {
		return nil, err
	}
	if seccomp != nil {
		delete(seccomp, "syscalls")
		if err := linux.set("seccomp", seccomp); err != nil {
			return nil, err
		}
	}
	for _, key := range []string{"ociVersion", "root", "process"} {
		if raw, ok := s.top[key]; ok {
			kept[key] = raw
		}
	}
	notes := maps.Clone(s.notes)
	delete(notes, crunFilter)
	if len(notes) > 0 {
		if err := kept.set("annotations", notes); err != nil {
			return nil, err
		}
	}
	if err := kept.set("linux", linux); err != nil {
		return nil, err
	}
	if !s.Verbatim {
		return json.Marshal(kept)
	}
	// crun would give it to a process without an environment of its own.
	var process object
	if err := kept.get("process", &process); err != nil {
		return nil, err
	}
	delete(process, "env")
	if err := kept.set("process", process); err != nil {
		return nil, err
	}
	return json.Marshal(kept)
}

// Explain returns an error of the container's first process in the words that its client expects.
func (s *Spec) Explain(err error) error {
	if words := Words(s.top["process"], err); s.Verbatim && words != nil {
		return words
	}
	return err
}

// CPUBurst returns the CPU burst of OCI resources in microseconds; nil if it is not set.
func CPUBurst(resources json.RawMessage) (*uint64, error) {
	var r object
	if err := json.Unmarshal(resources, &r); err != nil {
		return nil, fmt.Errorf("resources: %w: %w", errdefs.ErrInvalidArgument, err)
	}
	return cpuBurst(r)
}

func cpuBurst(resources object) (*uint64, error) {
	var cpu struct{ Burst *uint64 }
	err := resources.get("cpu", &cpu)
	return cpu.Burst, err
}

// Process returns the container's first process, after Adjust.
func (s *Spec) Process() json.RawMessage { return s.top["process"] }

// Rlimits returns the limits of the container's first process, after Adjust.
func (s *Spec) Rlimits() (json.RawMessage, error) {
	var process object
	err := s.top.get("process", &process)
	return process["rlimits"], err
}

// User returns the user of the container's first process, after Adjust.
func (s *Spec) User() (Named, error) {
	var process struct {
		User struct {
			UID    uint32   `json:"uid"`
			GID    uint32   `json:"gid"`
			Groups []uint32 `json:"additionalGids"`
		} `json:"user"`
	}
	if err := s.top.get("process", &process); err != nil {
		return Named{}, err
	}
	return Named{s.username, &agentv1.User{UID: process.User.UID, GID: process.User.GID, Groups: process.User.Groups}}, nil
}

// linux converts the Linux part of the specification.
func (s *Spec) linux(m VM) error {
	var linux object
	if err := s.top.get("linux", &linux); err != nil {
		return err
	}
	if linux == nil {
		linux = object{}
	}
	if err := s.namespaces(m, linux); err != nil {
		return err
	}
	if err := s.sysctls(linux); err != nil {
		return err
	}
	// The guest's kernel enforces none of these; the VM isolates the pod.
	for _, key := range []string{"mountLabel", "intelRdt"} {
		delete(linux, key)
	}
	if err := linux.set("cgroupsPath", m.Cgroup); err != nil {
		return err
	}
	if err := s.resources(m, linux); err != nil {
		return err
	}
	if err := s.devices(m, linux); err != nil {
		return err
	}
	s.within = linux
	return s.top.set("linux", linux)
}

// resources reads the cgroup resources that the agent also handles.
func (s *Spec) resources(m VM, linux object) error {
	var resources object
	if err := linux.get("resources", &resources); err != nil {
		return err
	}
	var huge []struct {
		Size  string `json:"pageSize"`
		Limit uint64 `json:"limit"`
	}
	if err := resources.get("hugepageLimits", &huge); err != nil {
		return err
	}
	s.HugePages = map[string]uint64{}
	for _, pages := range huge {
		s.HugePages[pages.Size] = pages.Limit
	}
	var err error
	if s.CPUBurst, err = cpuBurst(resources); err != nil {
		return err
	}
	var rules []json.RawMessage
	if err := resources.get("devices", &rules); err != nil || len(rules) == 0 {
		return err
	}
	s.DeviceRules = string(resources["devices"])
	if m.Ruled == nil || !m.Ruled(s.DeviceRules) {
		return nil
	}
	delete(resources, "devices")
	return linux.set("resources", resources)
}

func (s *Spec) mounts(m VM, readonly bool) error {
	var mounts []Mount
	if err := s.top.get("mounts", &mounts); err != nil {
		return err
	}
	ours, err := described(mounts)
	if err != nil {
		return err
	}
	files := make(map[string]string, len(m.Files))
	if !s.Verbatim {
		maps.Copy(files, m.Files)
	}
	var closed []string // read-only directories
	for i := range mounts {
		mount := &mounts[i]
		at := path.Clean("/" + mount.Destination)
		delete(files, at)
		if of, ok := ours[i]; ok && slices.ContainsFunc(of.Options, func(o string) bool { return o == "ro" || o == "rro" }) {
			closed = append(closed, at)
		}
		if of, ok := ours[i]; ok {
			if err := s.resolve(m, mount, of, at); err != nil {
				return err
			}
			continue
		}
		switch {
		case mount.Source == "/dev/shm" && mount.isBind() && at != "/dev/shm":
			mount.Source = m.Shm
		case mount.Source == "/dev/shm" && mount.isBind():
			*mount = Mount{Destination: at, Type: "bind", Source: m.Shm, Options: []string{"rbind", "rw", "nosuid", "nodev", "noexec"}}
		case mount.Type == "cgroup":
			mount.Type = "cgroup2"
		}
	}
	// A read-only volume at /etc may lack the mount point file that another mount needs.
	within := func(at string) bool { return slices.Contains(closed, path.Dir(at)) }
	mounts = slices.DeleteFunc(mounts, func(m Mount) bool { return m.door && within(m.Destination) })
	maps.DeleteFunc(files, func(at, _ string) bool { return within(at) })
	names := slices.Sorted(maps.Keys(files))
	for _, to := range names {
		mode := "rw"
		if readonly && !strings.HasPrefix(to, "/dev/") { // /dev is never read-only
			mode = "ro"
		}
		mounts = append(mounts, Mount{Destination: to, Type: "bind", Source: files[to], Options: []string{"bind", mode}})
	}
	for i := range mounts {
		if m.Place == nil || mounts[i].Type != "bind" {
			continue
		}
		if mounts[i].Destination, err = m.Place(mounts[i].Destination); err != nil {
			return err
		}
	}
	if mounts == nil {
		mounts = []Mount{}
	}
	return s.top.set("mounts", mounts)
}
