package run

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// The part of a Pod that tells of volumes.
type (
	volume struct {
		Name     string    `json:"name"`
		HostPath *hostPath `json:"hostPath,omitempty"`
		EmptyDir *emptyDir `json:"emptyDir,omitempty"`
	}
	hostPath struct {
		Path string `json:"path"`
	}
	emptyDir struct {
		Medium    string `json:"medium,omitempty"`
		SizeLimit string `json:"sizeLimit,omitempty"`
	}
	volumeMount struct {
		Name      string `json:"name"`
		MountPath string `json:"mountPath"`
		ReadOnly  bool   `json:"readOnly,omitempty"`
	}
)

// mounted is one thing that a container gets at a place of its own.
type mounted struct {
	from     volume // without its name
	at       string
	readOnly bool
}

var errNamedVolume = errors.New(
	"volumes with names are not possible yet; a directory of this machine is named by a path, such as ./data or /srv/data")

// volumeFlags are -v and --mount, in their order.
type volumeFlags struct{ all []mounted }

func (f *volumeFlags) add(flags *pflag.FlagSet) {
	flags.VarP(volumeFlag{f, parseVolume, "[HOST:]POD[:OPTIONS]"}, "volume", "v",
		"image: directory or file of this machine at POD; options: ro, rw; without HOST an empty directory")
	flags.Var(volumeFlag{f, parseMount, "type=bind|tmpfs,…"}, "mount",
		"image: the same in words: type=bind,source=HOST,target=POD[,readonly]; type=tmpfs,target=POD[,tmpfs-size=BYTES]")
}

// volumeFlag is one of the two as package pflag sees it.
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
		err = fmt.Errorf("%q is no absolute path in the pod", m.at)
	}
	if err == nil && slices.ContainsFunc(v.to.all, func(other mounted) bool { return path.Clean(other.at) == path.Clean(m.at) }) {
		err = fmt.Errorf("%s: a second one there", m.at)
	}
	if err == nil {
		v.to.all = append(v.to.all, m)
	}
	return err
}

// parseVolume reads what follows -v.
func parseVolume(text string) (m mounted, err error) {
	parts := strings.Split(text, ":")
	switch {
	case len(parts) == 1:
		m.at, m.from.EmptyDir = parts[0], &emptyDir{}
		return m, nil
	case len(parts) > 3:
		return m, errors.New("more than HOST:POD:OPTIONS")
	}
	m.at = parts[1]
	if m.from.HostPath, err = hostPathOf(parts[0]); err != nil || len(parts) < 3 {
		return m, err
	}
	for option := range strings.SplitSeq(parts[2], ",") {
		switch option {
		case "ro":
			m.readOnly = true
		case "rw", "z", "Z", "rbind", "bind", "rprivate", "private": // as it is; no policy of SELinux's is in a pod
		default:
			return m, fmt.Errorf("option %q", option)
		}
	}
	return m, nil
}

// hostPathOf is a path that somebody has typed, which has to be there: a directory that a
// typing error made is no help.
func hostPathOf(typed string) (*hostPath, error) {
	if typed == "" {
		return nil, errors.New("no path of this machine")
	}
	if !strings.HasPrefix(typed, "/") && !strings.HasPrefix(typed, ".") {
		return nil, fmt.Errorf("%q: %w", typed, errNamedVolume)
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

// parseMount reads what follows --mount.
func parseMount(text string) (m mounted, err error) {
	kind, source, size := "volume", "", ""
	for field := range strings.SplitSeq(text, ",") {
		key, value, _ := strings.Cut(field, "=")
		switch key {
		case "type":
			kind = value
		case "source", "src":
			source = value
		case "target", "dst", "destination":
			m.at = value
		case "readonly", "ro":
			m.readOnly = value != "false"
		case "rw":
			m.readOnly = value == "false"
		case "tmpfs-size":
			size = value
		default:
			return m, fmt.Errorf("%q is not known", key)
		}
	}
	switch {
	case m.at == "":
		return m, errors.New("no target")
	case kind == "bind":
		m.from.HostPath, err = hostPathOf(source)
	case kind == "tmpfs" && source == "":
		m.from.EmptyDir = &emptyDir{Medium: "Memory", SizeLimit: size}
	case kind == "volume":
		err = errNamedVolume
	default:
		err = fmt.Errorf("type %q is not bind or tmpfs", kind)
	}
	return m, err
}

// setVolumes gives a pod and its container what the flags say.
func (f *volumeFlags) setVolumes(p *podDocument) {
	c := &p.Spec.Containers[0]
	for i, m := range f.all {
		m.from.Name = fmt.Sprintf("volume-%d", i)
		p.Spec.Volumes = append(p.Spec.Volumes, m.from)
		c.VolumeMounts = append(c.VolumeMounts, volumeMount{Name: m.from.Name, MountPath: m.at, ReadOnly: m.readOnly})
	}
}
