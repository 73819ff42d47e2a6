package run

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

// The part of a Pod that tells of volumes.
type (
	volume struct {
		Name     string    `json:"name"`
		HostPath *hostPath `json:"hostPath,omitempty"`
		EmptyDir *emptyDir `json:"emptyDir,omitempty"`
		Claim    *claim    `json:"persistentVolumeClaim,omitempty"`
	}
	claim struct {
		Name string `json:"claimName"`
	}
	hostPath struct {
		Path string `json:"path"`
		Type string `json:"type,omitempty"`
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
	volumeDevice struct {
		Name       string `json:"name"`
		DevicePath string `json:"devicePath"`
	}
)

// mounted is one thing that a container gets at a place of its own.
type mounted struct {
	from     volume // without its name
	at       string
	readOnly bool
	cache    string // empty is as the engine likes
	noCopy   bool   // a volume stays empty that is so
	access   string // what the pod may do with a device, of "rwm"; empty for what is none
}

// volumeName is what volumes are called, as with podman. What is none has to be a path.
var volumeName = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]*$`)

// volumeFlags are -v and --mount, in their order.
type volumeFlags struct{ all []mounted }

func (f *volumeFlags) add(flags *pflag.FlagSet) {
	flags.VarP(volumeFlag{f, parseVolume, "[HOST|NAME:]POD[:OPTIONS]"}, "volume", "v",
		"image: directory or file of this machine, or a volume, at POD; options: ro, rw, nocopy, cache=auto|none|always; "+
			"without HOST or NAME an empty directory")
	flags.Var(volumeFlag{f, parseMount, "type=bind|volume|tmpfs,…"}, "mount",
		"image: the same in words: type=bind,source=HOST,target=POD[,readonly]; type=volume,source=NAME,target=POD[,volume-nocopy]; "+
			"type=tmpfs,target=POD[,tmpfs-size=BYTES]")
	flags.Var(volumeFlag{f, parseDevice, "HOST[:POD[:rwm]]"}, "device", "image: block device of this machine, at POD or where it is here")
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
		case option == "ro":
			m.readOnly = true
		case option == "nocopy" && m.from.Claim != nil:
			m.noCopy = true
		case option == "copy" && m.from.Claim != nil:
		case slices.Contains(unchanging, option):
		default:
			return m, fmt.Errorf("option %q", option)
		}
	}
	return m, nil
}

// unchanging are the options that say how it is anyway; no policy of SELinux's is in a pod.
var unchanging = []string{"rw", "z", "Z", "rbind", "bind", "rprivate", "private"}

func (m *mounted) setCache(value string) error {
	if !slices.Contains([]string{"auto", "none", "always"}, value) {
		return fmt.Errorf("cache=%s: it is auto, none or always", value)
	}
	m.cache = value
	return nil
}

// hostPathOf is a path that somebody has typed, which has to be there: a directory that a
// typing error made is no help.
func hostPathOf(typed string) (*hostPath, error) {
	if typed == "" {
		return nil, errors.New("no path of this machine")
	}
	if !strings.HasPrefix(typed, "/") && !strings.HasPrefix(typed, ".") {
		return nil, fmt.Errorf("%q is neither a volume's name nor a path, which begins with / or with a dot", typed)
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
		case "volume-nocopy":
			m.noCopy = value != "false"
		case "tmpfs-size":
			size = value
		case "cache":
			if err := m.setCache(value); err != nil {
				return m, err
			}
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
	case kind == "volume" && source == "":
		m.from.EmptyDir = &emptyDir{}
	case kind == "volume" && volumeName.MatchString(source):
		m.from.Claim = &claim{source}
	case kind == "volume":
		err = fmt.Errorf("source %q is no name for a volume", source)
	default:
		err = fmt.Errorf("type %q is not bind, volume or tmpfs", kind)
	}
	if err == nil && m.noCopy && m.from.Claim == nil {
		err = errors.New("volume-nocopy is for volumes with names")
	}
	if err == nil && m.cache != "" && m.from.EmptyDir != nil {
		err = errors.New("cache is for directories of this machine and shared volumes")
	}
	return m, err
}

// setVolumes gives a pod and its container what the flags say.
func (f *volumeFlags) setVolumes(p *podDocument) {
	c := &p.Spec.Containers[0]
	for i, m := range f.all {
		m.from.Name = fmt.Sprintf("volume-%d", i)
		p.Spec.Volumes = append(p.Spec.Volumes, m.from)
		filled := m.from.Claim != nil && !m.noCopy
		if p.Metadata.Annotations == nil && (m.cache != "" || m.access != "" || filled) {
			p.Metadata.Annotations = map[string]string{}
		}
		if m.cache != "" {
			p.Metadata.Annotations[annotations.Cache+m.from.Name] = m.cache
		}
		if filled {
			p.Metadata.Annotations[annotations.Copy+m.from.Name] = annotations.CopyImage
		}
		if m.access != "" {
			p.Metadata.Annotations[annotations.Device+m.from.Name] = m.access
			c.VolumeDevices = append(c.VolumeDevices, volumeDevice{Name: m.from.Name, DevicePath: m.at})
			continue
		}
		c.VolumeMounts = append(c.VolumeMounts, volumeMount{Name: m.from.Name, MountPath: m.at, ReadOnly: m.readOnly})
	}
}

// names are the volumes with names, which are made if they are missing.
func (f *volumeFlags) names() (names []string) {
	for _, m := range f.all {
		if m.from.Claim != nil && !slices.Contains(names, m.from.Claim.Name) {
			names = append(names, m.from.Claim.Name)
		}
	}
	return names
}
