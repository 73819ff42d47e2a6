package container

import (
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// securityFlags control the container's privileges.
type securityFlags struct {
	capAdd, capDrop, options, sysctls   []string
	privileged, readOnly, readOnlyTmpfs bool
	seccompDir                          string
}

func (f *securityFlags) add(flags *pflag.FlagSet) {
	flags.StringSliceVar(&f.capAdd, "cap-add", nil, "image: capability to add to the default ones, or all")
	flags.StringSliceVar(&f.capDrop, "cap-drop", nil, "image: capability to drop, or all")
	flags.BoolVar(&f.privileged, "privileged", false, "image: give all capabilities and devices of the pod's VM, and none of the host")
	flags.BoolVar(&f.readOnly, "read-only", false, "image: make the root read-only, with /run, /tmp and /var/tmp writable in memory")
	flags.BoolVar(&f.readOnlyTmpfs, "read-only-tmpfs", true, "image: with --read-only: make /run, /tmp and /var/tmp writable in memory")
	flags.StringArrayVar(&f.options, "security-opt", nil,
		"image: no-new-privileges, seccomp=unconfined, seccomp=PROFILE in the engine's directory, unmask=ALL")
	flags.StringArrayVar(&f.sysctls, "sysctl", nil, "image: parameter of the pod's kernel, NAME=VALUE")
}

func (f *securityFlags) apply(p *podDocument) error {
	c := p.only()
	if f.privileged {
		c.security().Privileged = true
	}
	if f.readOnly {
		c.security().ReadOnlyRoot = true
		if f.readOnlyTmpfs {
			writable(p)
		}
	}
	if len(f.capAdd)+len(f.capDrop) > 0 {
		c.security().Capabilities = &capabilities{Add: capabilityNames(f.capAdd), Drop: capabilityNames(f.capDrop)}
	}
	for _, text := range f.sysctls {
		name, value, ok := strings.Cut(text, "=")
		if !ok || name == "" {
			return fmt.Errorf("--sysctl %q: must be NAME=VALUE", text)
		}
		p.security().Sysctls = append(p.security().Sysctls, variable{name, value})
	}
	for _, option := range f.options {
		if err := f.option(p, option); err != nil {
			return fmt.Errorf("--security-opt %q: %w", option, err)
		}
	}
	return nil
}

// capabilityNames returns the names in the form of a Pod, without the prefix CAP_.
func capabilityNames(typed []string) (names []string) {
	for _, name := range typed {
		names = append(names, strings.TrimPrefix(strings.ToUpper(strings.TrimSpace(name)), "CAP_"))
	}
	return names
}

// writable mounts empty directories in memory at /run, /tmp and /var/tmp, unless something is mounted there.
func writable(p *podDocument) {
	c := p.only()
	for i, dir := range []struct {
		at   string
		mode int32
	}{{"/run", 0o755}, {"/tmp", 0o1777}, {"/var/tmp", 0o1777}} {
		if slices.ContainsFunc(c.VolumeMounts, func(m volumeMount) bool { return path.Clean(m.MountPath) == dir.at }) {
			continue
		}
		name := fmt.Sprintf("writable-%d", i)
		p.Spec.Volumes = append(p.Spec.Volumes, volume{Name: name, EmptyDir: &emptyDir{Medium: "Memory", Mode: &dir.mode}})
		c.VolumeMounts = append(c.VolumeMounts, volumeMount{Name: name, MountPath: dir.at, Options: []string{"nosuid", "nodev"}})
	}
}

// option applies one value of --security-opt. It accepts docker's colon after the name as well as podman's =.
func (f *securityFlags) option(p *podDocument, text string) error {
	c := p.only()
	name, value := text, ""
	if i := strings.IndexAny(text, "=:"); i >= 0 {
		name, value = text[:i], text[i+1:]
	}
	switch {
	case name == "no-new-privileges" && (value == "" || value == "true" || value == "false"):
		c.security().Escalation = new(value == "false")
	case name == "seccomp" && value == "unconfined":
		c.security().Seccomp = &seccompProfile{Type: "Unconfined"}
	case name == "seccomp":
		return f.seccomp(c, value)
	case name == "apparmor" && value == "unconfined", name == "label" && value == "disable":
		return nil // always true in a pod
	case name == "apparmor":
		return fmt.Errorf("the pod's kernel loads no AppArmor profile; only apparmor=unconfined is possible")
	case name == "label":
		return fmt.Errorf("the pod's kernel has no SELinux policy; only label=disable is possible")
	case name == "unmask" && strings.EqualFold(value, "all"), name == "systempaths" && value == "unconfined":
		c.security().ProcMount, p.Spec.HostUsers = "Unmasked", new(false)
	case name == "unmask", name == "mask":
		return fmt.Errorf("a Pod cannot mask single paths; only unmask=ALL is possible")
	case name == "proc-opts":
		return fmt.Errorf("a Pod cannot set the options of /proc")
	default:
		return fmt.Errorf("use no-new-privileges, seccomp=unconfined, seccomp=PROFILE or unmask=ALL")
	}
	return nil
}

// seccomp sets a profile from the engine's directory of profiles. The engine reads no other files.
func (f *securityFlags) seccomp(c *container, file string) error {
	at, err := filepath.Abs(file)
	if err != nil {
		return err
	}
	if !filepath.IsAbs(file) && !strings.HasPrefix(file, ".") {
		at = filepath.Join(f.seccompDir, file)
	}
	name, err := filepath.Rel(f.seccompDir, at)
	if err != nil || file == "" || !filepath.IsLocal(name) {
		return fmt.Errorf("the profile must lie in %s: copy it there and give its name", f.seccompDir)
	}
	c.security().Seccomp = &seccompProfile{Type: "Localhost", LocalhostProfile: name}
	return nil
}
