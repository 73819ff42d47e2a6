package spec

import (
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/errdefs"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
)

type namespace struct {
	Type string `json:"type"`
	Path string `json:"path,omitempty"`
}

// namespaces resolves the container's namespaces. It removes the settings of namespaces that are the VM's.
func (s *Spec) namespaces(m VM, linux object) error {
	var all []namespace
	if err := linux.get("namespaces", &all); err != nil {
		return err
	}
	kept := []namespace{{Type: "mount"}}
	for _, ns := range all {
		resolved, err := s.namespace(m, ns)
		if err != nil {
			return fmt.Errorf("linux.namespaces: type %.32q: %w", ns.Type, err)
		}
		if resolved != (namespace{}) {
			kept = append(kept, resolved)
		}
	}
	for _, key := range []string{"uidMappings", "gidMappings"} {
		var ids []any
		if err := linux.get(key, &ids); err != nil {
			return err
		}
		if len(ids) > 0 {
			return fmt.Errorf("linux.%s: %w", key, errUser)
		}
		delete(linux, key)
	}
	s.own = func(kind string) bool { return slices.Contains(kept, namespace{Type: kind}) }
	s.SharedPID = !s.own("pid")
	if !s.own("uts") {
		delete(s.top, "hostname")
		delete(s.top, "domainname")
	}
	return linux.set("namespaces", kept)
}

// errUser refuses user namespaces.
var errUser = fmt.Errorf("the guest has no user namespaces, because the host maps the ids of files: %w", errdefs.ErrNotImplemented)

// namespace resolves one namespace. The result is empty for a namespace of the VM.
func (s *Spec) namespace(m VM, ns namespace) (namespace, error) {
	switch ns.Type {
	case "mount":
		if ns.Path != "" {
			return namespace{}, fmt.Errorf("path %.128q: a container has its own mounts: %w", ns.Path, errdefs.ErrNotImplemented)
		}
		return namespace{}, nil // it is always there
	case "network":
		return namespace{}, nil
	case "cgroup":
		return namespace{Type: ns.Type}, nil
	case "pid", "ipc", "uts":
		if ns.Path == "" {
			return ns, nil
		}
	case "user":
		return namespace{}, errUser
	case "time":
		return namespace{}, fmt.Errorf("the pod has one clock: %w", errdefs.ErrNotImplemented)
	default:
		return namespace{}, fmt.Errorf("unknown: %w", errdefs.ErrInvalidArgument)
	}
	target, ok := agentv1.ParseNamespace(ns.Path)
	if m.Join == nil || !ok {
		return namespace{}, fmt.Errorf("path %.128q: %w", ns.Path, errdefs.ErrNotImplemented)
	}
	if target == "" && ns.Type != "pid" {
		return namespace{}, nil // the pod's is the VM's
	}
	path, err := m.Join(ns.Type, target)
	if err != nil {
		return namespace{}, err
	}
	return namespace{Type: ns.Type, Path: path}, nil
}

// sysctlsOf are the sysctls of a namespace, or the beginnings of their names.
var sysctlsOf = map[string][]string{
	"ipc": {
		"fs.mqueue.", "kernel.msgmax", "kernel.msgmnb", "kernel.msgmni", "kernel.sem",
		"kernel.shmall", "kernel.shmmax", "kernel.shmmni", "kernel.shm_rmid_forced",
	},
	"uts": {"kernel.domainname"},
}

// sysctls removes the sysctls of the VM's namespaces. crun sets the others in the container's.
func (s *Spec) sysctls(linux object) error {
	var all map[string]string
	if err := linux.get("sysctl", &all); err != nil {
		return err
	}
	delete(linux, "sysctl")
	own := map[string]string{}
	for name, value := range all {
		for kind, names := range sysctlsOf {
			if s.own(kind) && slices.ContainsFunc(names, func(of string) bool { return belongs(name, of) }) {
				own[name] = value
			}
		}
	}
	for name := range own {
		delete(all, name)
	}
	s.Sysctls = all
	if len(own) == 0 {
		return nil
	}
	return linux.set("sysctl", own)
}

// belongs reports whether a sysctl, with dots or slashes, has this name or beginning.
func belongs(name, of string) bool {
	name = strings.ReplaceAll(name, "/", ".")
	return name == of || strings.HasSuffix(of, ".") && strings.HasPrefix(name, of)
}
