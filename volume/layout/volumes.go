// Package layout defines the layout of a pod's volumes on the host, which is a kubelet's. It recognises volumes in the
// host paths of CRI mounts: in a kubelet's directories, or in those of package volume, which have the same layout. Any
// other path is an ordinary path of the host, whatever its parts are called.
package layout

import (
	"errors"
	"path"
	"strings"
)

// ErrUnknownSubPath is matched by errors of Of for a path below a kubelet's volume-subpaths that is not a mount of one
// of the pod's volumes.
var ErrUnknownSubPath = errors.New("not a part of a volume of the pod")

// The names of the directories of a pod's volumes, by kind.
const (
	EmptyDir    = "kubernetes.io~empty-dir"
	ConfigMap   = "kubernetes.io~configmap"
	Secret      = "kubernetes.io~secret"
	DownwardAPI = "kubernetes.io~downward-api"
	Projected   = "kubernetes.io~projected"
	// HostPath is only a name below Own, also for claims. The pod's options have the actual path.
	HostPath = "kubernetes.io~host-path"
)

// kinds has for each kind whether the host has the volume's files.
var kinds = map[string]bool{EmptyDir: false, ConfigMap: true, Secret: true, DownwardAPI: true, Projected: true}

// Dirs are the directories in which volumes are recognised. The zero value recognises none.
type Dirs struct {
	// Kubelet is a kubelet's root directory ("/var/lib/kubelet"); empty means none.
	Kubelet string
	// Own contains a directory with the volumes of each pod; empty means none.
	Own string
}

// Volume is a pod's volume, or a part of one.
type Volume struct {
	Name    string
	Dir     string // on the host
	SubPath string // below Dir; empty means all
	// Files means that the host has the volume's files. Host means that the pod's options name its path on the host.
	// Otherwise it is an EmptyDir, which only the guest has.
	Files, Host bool
}

// Of returns the volume for a path of the host. ok is false for an ordinary path.
func (d Dirs) Of(hostPath string) (v Volume, ok bool, err error) {
	hostPath = path.Clean(hostPath)
	if rest, below := below(d.Own, hostPath); below {
		v, ok = volume(d.Own, rest[:1], rest[1:])
		if v.Host = !ok && len(rest) > 2 && rest[1] == HostPath; v.Host {
			ok = true
		}
		return v, ok, nil
	}
	pods := ""
	if d.Kubelet != "" {
		pods = path.Join(d.Kubelet, "pods")
	}
	rest, inPods := below(pods, hostPath)
	switch {
	case !inPods || len(rest) < 3:
		return Volume{}, false, nil
	case rest[1] == "volumes":
		v, ok = volume(pods, rest[:2], rest[2:])
		return v, ok, nil
	case rest[1] == "volume-subpaths":
		v, err = subPath(path.Join(pods, rest[0], "volumes"), rest[2], hostPath)
		if errors.Is(err, errOther) {
			return Volume{}, false, nil
		}
		return v, err == nil, err
	}
	return Volume{}, false, nil
}

// Holds reports whether a path of the host is in a directory of pods' volumes. The other files in a pod's directory
// belong to the door, such as its /etc/hosts.
func (d Dirs) Holds(hostPath string) bool {
	hostPath = path.Clean(hostPath)
	if _, own := below(d.Own, hostPath); own || d.Kubelet == "" {
		return own
	}
	rest, inPods := below(path.Join(d.Kubelet, "pods"), hostPath)
	return inPods && len(rest) > 1 && strings.HasPrefix(rest[1], "volume")
}

// below returns the parts of a clean path below dir.
func below(dir, name string) ([]string, bool) {
	if dir == "" {
		return nil, false
	}
	rest, ok := strings.CutPrefix(name, strings.TrimSuffix(path.Clean(dir), "/")+"/")
	return strings.Split(rest, "/"), ok
}

// volume returns the volume for the path KIND/NAME[/SUBPATH] in base, below the directories of pod.
func volume(base string, pod, parts []string) (Volume, bool) {
	if len(parts) < 2 {
		return Volume{}, false
	}
	files, known := kinds[parts[0]]
	dir := path.Join(base, path.Join(pod...), parts[0], parts[1])
	return Volume{Name: parts[1], Dir: dir, SubPath: path.Join(parts[2:]...), Files: files}, known
}
