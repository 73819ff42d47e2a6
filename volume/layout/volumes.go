// Package layout says how a pod's volumes lie on the host, as a kubelet lays them, and
// recognises the volumes that a CRI mount's host path stands for: a
// kubelet's own directories, or those of package volume, which lie as a kubelet's do.
// A path anywhere else is an ordinary path of the host, whatever its parts are called.
package layout

import (
	"errors"
	"path"
	"strings"
)

// ErrUnknownSubPath is matched by the error of Of for a path below a kubelet's
// volume-subpaths that is no mount of a volume of that pod.
var ErrUnknownSubPath = errors.New("not a part of a volume of the pod")

// The names of the directories of a pod's volumes, by the volumes' kind.
const (
	EmptyDir    = "kubernetes.io~empty-dir"
	ConfigMap   = "kubernetes.io~configmap"
	Secret      = "kubernetes.io~secret"
	DownwardAPI = "kubernetes.io~downward-api"
	Projected   = "kubernetes.io~projected"
	// HostPath is only a name below Own, of claims too: what lies there is where the pod's options
	// say.
	HostPath = "kubernetes.io~host-path"
)

// kinds tells of each kind whether the host has the volume's files.
var kinds = map[string]bool{EmptyDir: false, ConfigMap: true, Secret: true, DownwardAPI: true, Projected: true}

// Dirs are the directories in which volumes are recognised. The zero value knows none.
type Dirs struct {
	// Kubelet is a kubelet's root directory ("/var/lib/kubelet"); empty is none.
	Kubelet string
	// Own holds a directory for each pod, in which its volumes lie; empty is none.
	Own string
}

// Volume is a pod's volume, or a part of one.
type Volume struct {
	Name    string
	Dir     string // on the host
	SubPath string // below Dir; empty is all
	// Files says that the host has the volume's files, and Host that it is a directory of the
	// host's that the pod's options name; else it is an EmptyDir, which only the guest has.
	Files, Host bool
}

// Of returns the volume that a path of the host stands for. ok is false for an ordinary
// path.
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

// Holds reports whether a path of the host lies where pods' volumes lie. The other files of a
// pod's directory are the door's own, such as its /etc/hosts.
func (d Dirs) Holds(hostPath string) bool {
	hostPath = path.Clean(hostPath)
	if _, own := below(d.Own, hostPath); own || d.Kubelet == "" {
		return own
	}
	rest, inPods := below(path.Join(d.Kubelet, "pods"), hostPath)
	return inPods && len(rest) > 1 && strings.HasPrefix(rest[1], "volume")
}

// below splits what follows dir in a clean path.
func below(dir, name string) ([]string, bool) {
	if dir == "" {
		return nil, false
	}
	rest, ok := strings.CutPrefix(name, strings.TrimSuffix(path.Clean(dir), "/")+"/")
	return strings.Split(rest, "/"), ok
}

// volume is the one that KIND/NAME[/SUBPATH] names, which lies in base below pod's.
func volume(base string, pod, parts []string) (Volume, bool) {
	if len(parts) < 2 {
		return Volume{}, false
	}
	files, known := kinds[parts[0]]
	dir := path.Join(base, path.Join(pod...), parts[0], parts[1])
	return Volume{Name: parts[1], Dir: dir, SubPath: path.Join(parts[2:]...), Files: files}, known
}
