package launcher

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// Bounds of guest/launcher/launcher.c.
const (
	version     = 1
	headerSize  = 96
	maxMessage  = 128 << 10
	maxStrings  = 4096
	maxLimits   = 16
	maxFilter   = 4096 // instructions of 8 bytes
	noNewPrivs  = 1
	instruction = 8
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
		Annotations map[string]string `json:"annotations"`
		Process     struct {
			Capabilities    *capabilities `json:"capabilities"`
			ApparmorProfile string        `json:"apparmorProfile"`
			SelinuxLabel    string        `json:"selinuxLabel"`
		} `json:"process"`
		Linux struct {
			Namespaces  []struct{ Type string } `json:"namespaces"`
			Personality json.RawMessage         `json:"personality"`
			Seccomp     struct {
				Flags        json.RawMessage `json:"flags"`
				ListenerPath string          `json:"listenerPath"`
			} `json:"seccomp"`
		} `json:"linux"`
	}
	decline := func(format string, args ...any) *Container {
		return &Container{declined: fmt.Errorf("%w: "+format, append([]any{ErrDeclined}, args...)...)}
	}
	if err := json.Unmarshal(config, &c); err != nil {
		return decline("%w", err)
	}
	for name := range c.Annotations {
		if strings.HasPrefix(name, "run.oci.") {
			return decline("annotation %.64q", name)
		}
	}
	for _, n := range c.Linux.Namespaces {
		switch n.Type {
		case "mount", "network", "ipc", "pid", "uts", "cgroup":
		default:
			return decline("a namespace of type %.64q", n.Type)
		}
	}
	seccomp := c.Linux.Seccomp
	switch {
	case c.Linux.Personality != nil:
		return decline("a personality")
	case c.Process.ApparmorProfile != "" || c.Process.SelinuxLabel != "":
		return decline("a label")
	case seccomp.Flags != nil || seccomp.ListenerPath != "":
		return decline("seccomp flags or a notifier")
	case len(filter)%instruction != 0 || len(filter) > maxFilter*instruction:
		return decline("a filter of %d bytes", len(filter))
	}
	return &Container{filter: filter, capabilities: c.Process.Capabilities}
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
	if c.declined != nil {
		return nil, c.declined
	}
	decline := func(format string, args ...any) ([]byte, error) {
		return nil, fmt.Errorf("%w: "+format, append([]any{ErrDeclined}, args...)...)
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
	case len(p.Rlimits) > maxLimits:
		return decline("%d limits", len(p.Rlimits))
	}
	caps := p.Capabilities
	if caps == nil {
		caps = c.capabilities
	}
	sets, err := caps.sets()
	if err != nil {
		return nil, err
	}
	variables := make([]string, len(env))
	for _, v := range p.Env { // a later one replaces an earlier one, in its place
		name, _, _ := strings.Cut(v, "=")
		variables[env[name]-1] = v
	}
	words := append(append([]string{p.Cwd}, p.Args...), variables...)
	text := strings.Join(words, "\x00") + "\x00"
	if len(words) > maxStrings || strings.Count(text, "\x00") != len(words) {
		return decline("too many arguments and variables, or a NUL byte in them")
	}
	size := headerSize + 24*len(p.Rlimits) + len(c.filter) + 4*len(p.User.Groups) + len(text)
	if size > maxMessage {
		return decline("%d bytes", size)
	}
	umask, flags := uint32(defaultUmask), uint32(0)
	if p.User.Umask != nil {
		umask = *p.User.Umask
	}
	if p.NoNewPrivileges {
		flags = noNewPrivs
	}
	out := make([]byte, 0, size)
	put := func(values ...uint32) {
		for _, v := range values {
			out = binary.LittleEndian.AppendUint32(out, v)
		}
	}
	wide := func(values ...uint64) {
		for _, v := range values {
			out = binary.LittleEndian.AppendUint64(out, v)
		}
	}
	put(version, uint32(size), p.User.UID, p.User.GID, umask, flags, namespaces, unix.SECCOMP_FILTER_FLAG_SPEC_ALLOW)
	wide(sets[:]...)
	put(uint32(len(p.Rlimits)), uint32(len(c.filter)/instruction), uint32(len(p.User.Groups)),
		uint32(len(p.Args)), uint32(len(variables)), uint32(len(text)))
	for _, limit := range p.Rlimits {
		resource, ok := resources[limit.Type]
		if !ok {
			return decline("limit %.64q", limit.Type)
		}
		wide(resource, limit.Soft, limit.Hard)
	}
	out = append(out, c.filter...)
	put(p.User.Groups...)
	return append(out, text...), nil
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
