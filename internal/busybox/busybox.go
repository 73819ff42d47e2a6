// Package busybox builds a small container image from a static busybox: the demo image, and the image of many tests.
package busybox

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"github.com/bulkhead-project/bulkhead/internal/ociimage"
)

const (
	// Binary is the program of Debian's package busybox-static. Its wget crashes with -T.
	Binary = "/bin/busybox"
	// Built is the program of hack/build-static, which has more applets, relative to the top of the tree.
	Built = "build/busybox/busybox"
)

const (
	passwd = `root:x:0:0:root:/root:/bin/sh
daemon:x:1:1:daemon:/usr/sbin:/bin/false
demo:x:1000:1000:demo:/home/demo:/bin/sh
nobody:x:65534:65534:nobody:/nonexistent:/bin/false
`
	group = `root:x:0:
daemon:x:1:
demo:x:1000:
extra:x:2000:demo
nogroup:x:65534:
`
)

// Image builds the image from the static busybox at binary. It runs busybox to list its applets. The image has a shell
// as its command, the users root, daemon, demo (1000, also in the group extra, 2000) and nobody, and the usual empty
// directories. Its creation time is the binary's. The same binary gives the same image.
func Image(ctx context.Context, binary string) (v1.Image, error) {
	program, err := os.ReadFile(binary)
	if err != nil {
		return nil, fmt.Errorf("build the busybox image: %w (run hack/build-static busybox, or install busybox-static)", err)
	}
	info, err := os.Stat(binary)
	if err != nil {
		return nil, fmt.Errorf("build the busybox image: %w", err)
	}
	list, err := exec.CommandContext(ctx, binary, "--list-full").Output()
	if err != nil {
		return nil, fmt.Errorf("build the busybox image: list the applets: %w", err)
	}
	layer := []ociimage.Entry{}
	for _, dir := range []string{
		"bin", "dev", "etc", "home", "home/demo", "proc", "run", "sbin", "sys",
		"usr", "usr/bin", "usr/sbin", "var", "var/tmp",
	} {
		layer = append(layer, ociimage.Dir(dir, 0o755))
	}
	owned := &layer[slices.IndexFunc(layer, func(e ociimage.Entry) bool { return path.Clean(e.Name) == "home/demo" })]
	owned.Uid, owned.Gid = 1000, 1000
	layer = append(layer,
		ociimage.Dir("root", 0o700),
		ociimage.Dir("tmp", 0o1777),
		ociimage.File("etc/passwd", 0o644, passwd),
		ociimage.File("etc/group", 0o644, group),
		ociimage.Entry{Header: tar.Header{Typeflag: tar.TypeReg, Name: "bin/busybox", Mode: 0o755}, Body: program},
	)
	for _, applet := range applets(list) {
		layer = append(layer, ociimage.Symlink(applet, "/bin/busybox"))
	}
	img, err := ociimage.New(v1.Config{
		Cmd: []string{"sh"},
		Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
	}, layer)
	if err != nil {
		return nil, err
	}
	return mutate.CreatedAt(img, v1.Time{Time: info.ModTime().UTC()})
}

// applets returns the paths of the links for busybox's list, sorted and without duplicates. Names without a directory
// are in busybox's own.
func applets(list []byte) []string {
	var paths []string
	for line := range strings.Lines(string(bytes.TrimSpace(list))) {
		name := path.Clean(strings.TrimSpace(line))
		if !strings.Contains(name, "/") {
			name = "bin/" + name
		}
		if name != "bin/busybox" && path.Dir(name) != "." {
			paths = append(paths, name)
		}
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}
