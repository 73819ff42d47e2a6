package annotations

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestVolumeOf(t *testing.T) {
	const pods = "/var/lib/kubelet/pods/u/volumes/"
	for path, want := range map[string]Volume{
		pods + "kubernetes.io~empty-dir/v":                        {Kind: EmptyDirPath, Name: "v", Dir: pods + "kubernetes.io~empty-dir/v"},
		pods + "kubernetes.io~configmap/v":                        {Kind: "kubernetes.io~configmap", Name: "v", Dir: pods + "kubernetes.io~configmap/v", Files: true},
		pods + "kubernetes.io~secret/v/a/b":                       {Kind: "kubernetes.io~secret", Name: "v", Dir: pods + "kubernetes.io~secret/v", SubPath: "a/b", Files: true},
		pods + "kubernetes.io~projected/v/":                       {Kind: "kubernetes.io~projected", Name: "v", Dir: pods + "kubernetes.io~projected/v", Files: true},
		pods + "kubernetes.io~downward-api/v/./x":                 {Kind: "kubernetes.io~downward-api", Name: "v", Dir: pods + "kubernetes.io~downward-api/v", SubPath: "x", Files: true},
		pods + "kubernetes.io~empty-dir/v/kubernetes.io~secret/s": {Kind: EmptyDirPath, Name: "v", Dir: pods + "kubernetes.io~empty-dir/v", SubPath: "kubernetes.io~secret/s"},
		pods + "kubernetes.io~csi/v":                              {},
		pods + "kubernetes.io~secret":                             {},
		pods + "kubernetes.io~secret/..":                          {},
		pods + "kubernetes.io~secret/v/../../../x":                {},
		"/etc": {}, "/": {}, "": {}, "relative/x": {},
	} {
		if diff := cmp.Diff(want, VolumeOf(path)); diff != "" {
			t.Errorf("%q: %s", path, diff)
		}
	}
}
