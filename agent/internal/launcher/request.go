package launcher

import (
	"encoding/json"
	"fmt"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// Bounds of guest/launcher/launcher.h.
const (
	version     = 2
	headerSize  = 112
	maxMessage  = 128 << 10
	maxStrings  = 4096
	maxLimits   = 16
	maxFilter   = 4096 // instructions of 8 bytes
	maxMounts   = 1023 // with masked and read-only paths
	maxNodes    = 1024
	instruction = 8
)

// The flags of a request.
const (
	noNewPrivs = 1 << iota
	create
	readOnly
	usualDevices
)

// namespaces are the kinds that a process joins: all that the agent's containers can have of their own.
const namespaces = unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWPID | unix.CLONE_NEWUTS |
	unix.CLONE_NEWCGROUP

const defaultUmask = 0o022

// Container is the part of a container's specification that applies to its further processes.
type Container struct {
	filter       []byte // compiled
	capabilities *capabilities
	declined     error // why no process can be started, or nil
}

// NewContainer returns the container with that configuration, of spec.EncodeForExec, and that compiled seccomp filter.
func NewContainer(config, filter []byte) *Container {
	var c struct {
		Annotations map[string]string          `json:"annotations"`
		Process     json.RawMessage            `json:"process"`
		Linux       map[string]json.RawMessage `json:"linux"`
	}
	if err := json.Unmarshal(config, &c); err != nil {
		return &Container{declined: decline("%w", err)}
	}
	for name := range c.Annotations {
		if strings.HasPrefix(name, "run.oci.") {
			return &Container{declined: decline("annotation %.64q", name)}
		}
	}
	return newContainer(c.Process, c.Linux, filter)
}

// newContainer returns the container with a first process, a Linux part and a compiled seccomp filter.
func newContainer(process json.RawMessage, linux map[string]json.RawMessage, filter []byte) *Container {
	var p struct {
		Capabilities    *capabilities `json:"capabilities"`
		ApparmorProfile string        `json:"apparmorProfile"`
		SelinuxLabel    string        `json:"selinuxLabel"`
	}
	var namespaces []struct{ Type string }
	var seccomp struct {
		Flags        json.RawMessage `json:"flags"`
		ListenerPath string          `json:"listenerPath"`
	}
	decline := func(format string, args ...any) *Container { return &Container{declined: decline(format, args...)} }
	for _, part := range []struct {
		raw json.RawMessage
		to  any
	}{{process, &p}, {linux["namespaces"], &namespaces}, {linux["seccomp"], &seccomp}} {
		if err := json.Unmarshal(part.raw, part.to); given(part.raw) && err != nil {
			return decline("%w", err)
		}
	}
	for _, n := range namespaces {
		switch n.Type {
		case "mount", "network", "ipc", "pid", "uts", "cgroup":
		default:
			return decline("a namespace of type %.64q", n.Type)
		}
	}
	switch {
	case given(linux["personality"]):
		return decline("a personality")
	case p.ApparmorProfile != "" || p.SelinuxLabel != "":
		return decline("a label")
	case seccomp.Flags != nil || seccomp.ListenerPath != "":
		return decline("seccomp flags or a notifier")
	case len(filter)%instruction != 0 || len(filter) > maxFilter*instruction:
		return decline("a filter of %d bytes", len(filter))
	}
	return &Container{filter: filter, capabilities: p.Capabilities}
}

// process is an OCI process.
type process struct {
	Args []string `json:"args"`
	Env  []string `json:"env"`
	Cwd  string   `json:"cwd"`
	User *struct {
		UID    uint32   `json:"uid"`
		GID    uint32   `json:"gid"`
		Umask  *uint32  `json:"umask"`
		Groups []uint32 `json:"additionalGids"`
	} `json:"user"`
	Capabilities *capabilities `json:"capabilities"`
	Rlimits      []struct {
		Type string `json:"type"`
		Soft uint64 `json:"soft"`
		Hard uint64 `json:"hard"`
	} `json:"rlimits"`
	NoNewPrivileges bool            `json:"noNewPrivileges"`
	Terminal        bool            `json:"terminal"`
	ConsoleSize     json.RawMessage `json:"consoleSize"`
	ApparmorProfile string          `json:"apparmorProfile"`
	SelinuxLabel    string          `json:"selinuxLabel"`
}

// encode returns the message for an OCI process.
func (c *Container) encode(raw json.RawMessage) ([]byte, error) {
	m := &message{namespaces: namespaces}
	if err := c.fill(m, raw); err != nil {
		return nil, err
	}
	return m.marshal()
}

// fill adds an OCI process to a message.
func (c *Container) fill(m *message, raw json.RawMessage) error {
	if c.declined != nil {
		return c.declined
	}
	var p process
	if err := json.Unmarshal(raw, &p); err != nil {
		return decline("%w", err)
	}
	env, ok := environment(p.Env)
	switch {
	case p.Terminal || p.ConsoleSize != nil:
		return decline("a terminal")
	case p.ApparmorProfile != "" || p.SelinuxLabel != "":
		return decline("a label")
	case p.User == nil || len(p.Args) == 0 || p.Args[0] == "" || !path.IsAbs(p.Cwd):
		return decline("no user, command or directory")
	case !ok || env["HOME"] == 0 || env["PATH"] == 0 && !strings.Contains(p.Args[0], "/"):
		return decline("its environment")
	}
	caps := p.Capabilities
	if caps == nil {
		caps = c.capabilities
	}
	var err error
	if m.sets, err = caps.sets(); err != nil {
		return err
	}
	variables := make([]string, len(env))
	for _, v := range p.Env { // a later one replaces an earlier one, in its place
		name, _, _ := strings.Cut(v, "=")
		variables[env[name]-1] = v
	}
	for _, l := range p.Rlimits {
		resource, ok := resources[l.Type]
		if !ok {
			return decline("limit %.64q", l.Type)
		}
		m.limits = append(m.limits, [3]uint64{resource, l.Soft, l.Hard})
	}
	m.cwd, m.args, m.env, m.filter = p.Cwd, p.Args, variables, c.filter
	m.uid, m.gid, m.groups, m.umask = p.User.UID, p.User.GID, p.User.Groups, defaultUmask
	if p.User.Umask != nil {
		m.umask = *p.User.Umask
	}
	if p.NoNewPrivileges {
		m.flags |= noNewPrivs
	}
	return nil
}

// decline returns an error that matches ErrDeclined.
func decline(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrDeclined}, args...)...)
}

// environment returns the places of the variables, from 1. It reports whether all are NAME=VALUE.
func environment(env []string) (map[string]int, bool) {
	places := map[string]int{}
	for _, v := range env {
		name, _, ok := strings.Cut(v, "=")
		if !ok || name == "" {
			return nil, false
		}
		if places[name] == 0 {
			places[name] = len(places) + 1
		}
	}
	return places, true
}

var resources = map[string]uint64{
	"RLIMIT_CPU": 0, "RLIMIT_FSIZE": 1, "RLIMIT_DATA": 2, "RLIMIT_STACK": 3, "RLIMIT_CORE": 4, "RLIMIT_RSS": 5, "RLIMIT_NPROC": 6,
	"RLIMIT_NOFILE": 7, "RLIMIT_MEMLOCK": 8, "RLIMIT_AS": 9, "RLIMIT_LOCKS": 10, "RLIMIT_SIGPENDING": 11, "RLIMIT_MSGQUEUE": 12,
	"RLIMIT_NICE": 13, "RLIMIT_RTPRIO": 14, "RLIMIT_RTTIME": 15,
}
