package container

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/bulkhead-project/bulkhead/api/annotations"
)

// mounted is a volume, or a device, of a container and its path.
type mounted struct {
	from     volume // without its name
	at       string
	readOnly bool
	cache    string   // empty for the engine's default
	noCopy   bool     // an empty volume stays empty
	access   string   // permissions of a device, from "rwm"; empty for other mounts
	options  []string // of the mount: noexec, nosuid, nodev
}

// volumeName matches the names of volumes, as in podman. Any other source must be a path.
var volumeName = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]*$`)

// volumeFlags collects -v, --mount, --tmpfs and --device in their order.
type volumeFlags struct{ all []mounted }

func (f *volumeFlags) add(flags *pflag.FlagSet) {
	flags.VarP(volumeFlag{f, parseVolume, "[HOST|NAME:]POD[:OPTIONS]"}, "volume", "v",
		`image: mount a directory or file of the host, or a volume, at POD; options: ro, rw, nocopy, cache=auto|none|always; `+
			`without HOST or NAME, mount an empty directory; write \: for a colon in a path`)
	flags.Var(volumeFlag{f, parseMount, "type=bind|volume|tmpfs,…"}, "mount",
		"image: same as -v in long form: type=bind,source=HOST,target=POD[,readonly]; type=volume,source=NAME,target=POD[,volume-nocopy]; "+
			`type=tmpfs,target=POD[,tmpfs-size=BYTES]; put a field with a comma in "quotes"`)
	flags.Var(volumeFlag{f, parseTmpfs, "POD[:OPTIONS]"}, "tmpfs",
		"image: mount an empty directory in memory; options: size=BYTES, mode=OCTAL, ro, noexec, nosuid, nodev")
	flags.Var(volumeFlag{f, parseShm, "BYTES"}, "shm-size", "image: size of /dev/shm, such as 256m")
	flags.Var(volumeFlag{f, parseDevice, "HOST[:POD[:rwm]]"}, "device", "image: block device of the host, at POD or at the same path")
}

// volumeFlag is one of them as a pflag.Value.
type volumeFlag struct {
	to    *volumeFlags
	parse func(string) (mounted, error)
	kind  string
}

// String implements pflag.Value.
func (v volumeFlag) String() string { return "" }

// Type implements pflag.Value.
func (v volumeFlag) Type() string { return v.kind }

// Set implements pflag.Value.
func (v volumeFlag) Set(text string) error {
	m, err := v.parse(text)
	if err == nil && !path.IsAbs(m.at) {
		err = fmt.Errorf("%q is not an absolute path in the pod", m.at)
	}
	if err == nil && slices.ContainsFunc(v.to.all, func(other mounted) bool { return path.Clean(other.at) == path.Clean(m.at) }) {
		err = fmt.Errorf("%s: another one is already there", m.at)
	}
	if err == nil {
		v.to.all = append(v.to.all, m)
	}
	return err
}

// parseVolume parses the value of -v.
func parseVolume(text string) (m mounted, err error) {
	parts := splitColons(text)
	switch {
	case len(parts) == 1:
		m.at, m.from.EmptyDir = parts[0], &emptyDir{}
		return m, nil
	case len(parts) > 3:
		return m, errors.New(`must be HOST:POD:OPTIONS; write \: for a colon in a path`)
	}
	m.at = parts[1]
	if volumeName.MatchString(parts[0]) {
		m.from.Claim = &claim{parts[0]}
	} else {
		m.from.HostPath, err = hostPathOf(parts[0])
	}
	if err != nil || len(parts) < 3 {
		return m, err
	}
	for option := range strings.SplitSeq(parts[2], ",") {
		key, value, _ := strings.Cut(option, "=")
		switch {
		case key == "cache":
			if err := m.setCache(value); err != nil {
				return m, err
			}
		case option == "nocopy" && m.from.Claim != nil:
			m.noCopy = true
		case option == "copy" && m.from.Claim != nil:
		case m.setOption(option), slices.Contains(unchanging, option):
		default:
			return m, fmt.Errorf("unknown option %q", option)
		}
	}
	return m, nil
}

// splitColons splits at colons that no backslash precedes. Other backslashes belong to the path.
func splitColons(text string) []string {
	parts := strings.Split(text, ":")
	for i := 0; i+1 < len(parts); {
		if before, escaped := strings.CutSuffix(parts[i], `\`); escaped {
			parts = slices.Replace(parts, i, i+2, before+":"+parts[i+1])
			continue
		}
		i++
	}
	return parts
}

// unchanging lists accepted options that describe what is true anyway: pods have no SELinux policy, and private
// mounts.
var unchanging = []string{"z", "Z", "rbind", "bind", "rprivate", "private"}

// setOption applies an option that all mounts accept, and reports whether it is one.
func (m *mounted) setOption(option string) bool {
	switch option {
	case "ro", "rw":
		m.readOnly = option == "ro"
	case "noexec", "nosuid", "nodev":
		if !slices.Contains(m.options, option) {
			m.options = append(m.options, option)
		}
	default:
		return false
	}
	return true
}

func (m *mounted) setCache(value string) error {
	if !slices.Contains([]string{"auto", "none", "always"}, value) {
		return fmt.Errorf("cache=%s: must be auto, none or always", value)
	}
	m.cache = value
	return nil
}

// hostPathOf returns a typed path of the host, which must exist: creating a mistyped directory would hide the
// error.
func hostPathOf(typed string) (*hostPath, error) {
	if typed == "" {
		return nil, errors.New("the path on the host is missing")
	}
	if !strings.HasPrefix(typed, "/") && !strings.HasPrefix(typed, ".") {
		return nil, fmt.Errorf("%q is neither the name of a volume nor a path: a path begins with / or a dot", typed)
	}
	at, err := filepath.Abs(typed)
	if err == nil {
		_, err = os.Stat(at)
	}
	if err != nil {
		return nil, err
	}
	return &hostPath{Path: at}, nil
}

// apply adds the volumes to a pod and its container.
func (f *volumeFlags) apply(p *podDocument) error {
	c := p.only()
	for i, m := range f.all {
		m.from.Name = fmt.Sprintf("volume-%d", i)
		p.Spec.Volumes = append(p.Spec.Volumes, m.from)
		if m.cache != "" {
			p.annotate(annotations.Cache+m.from.Name, m.cache)
		}
		if m.from.Claim != nil && !m.noCopy {
			p.annotate(annotations.Copy+m.from.Name, annotations.CopyImage)
		}
		if m.access != "" {
			p.annotate(annotations.Device+m.from.Name, m.access)
			c.VolumeDevices = append(c.VolumeDevices, volumeDevice{Name: m.from.Name, DevicePath: m.at})
			continue
		}
		c.VolumeMounts = append(c.VolumeMounts, volumeMount{Name: m.from.Name, MountPath: m.at, ReadOnly: m.readOnly, Options: m.options})
	}
	return nil
}

// names returns the named volumes. The engine creates missing ones.
func (f *volumeFlags) names() (names []string) {
	for _, m := range f.all {
		if m.from.Claim != nil && !slices.Contains(names, m.from.Claim.Name) {
			names = append(names, m.from.Claim.Name)
		}
	}
	return names
}
