package convert

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
	"github.com/bulkhead-project/bulkhead/oci"
)

// The beginnings of annotations with a meaning.
const (
	prefix     = "io.bulkhead."
	kataPrefix = "io.katacontainers."
	criPrefix  = "io.kubernetes.cri."
)

const (
	annotationStrict  = prefix + "strict"
	annotationVolumes = prefix + "volumes"
	annotationSockets = prefix + "sockets"
)

// known are the annotations of Bulkhead and Kata that have an effect.
var known = []string{
	annotationStrict, annotationVolumes, annotationSockets, annotationCPUs, annotationMemory, kataCPUs, kataMemory, kataHashType,
	prefix + "kernel", prefix + "kernel-sha256", prefix + "initrd", prefix + "initrd-sha256", prefix + "image", prefix + "image-sha256",
	kataFile + "kernel", kataFile + "kernel_hash", kataFile + "initrd", kataFile + "initrd_hash", kataFile + "image", kataFile + "image_hash",
}

// isStrict reads the annotation io.bulkhead.strict.
func isStrict(annotations map[string]string) (bool, error) {
	switch text := annotations[annotationStrict]; text {
	case "", "false":
		return false, nil
	case "true":
		return true, nil
	default:
		return false, invalid("annotations."+annotationStrict, "%.32q must be true or false", text)
	}
}

// annotations records the unknown ones of Bulkhead and Kata.
func (c *conversion) annotations() error {
	for _, name := range slices.Sorted(maps.Keys(c.spec.Annotations)) {
		ours := strings.HasPrefix(name, prefix) || strings.HasPrefix(name, kataPrefix)
		if ours && !slices.Contains(known, name) {
			c.ignore("annotations."+name, "Bulkhead does not know it")
		}
	}
	return nil
}

// volumesDir is the directory in a container for volumes by annotation.
const volumesDir = "/run/bulkhead/volumes/"

// volumes adds the volumes that the annotation io.bulkhead.volumes names, each at volumesDir + TAG. The administrator
// must have allowed their directories.
func (c *conversion) volumes() error {
	if c.spec.Annotations[annotationSockets] != "" {
		const field = "annotations." + annotationSockets
		if _, err := oci.ParseSockets(c.spec.Annotations[annotationSockets]); err != nil {
			return invalid(field, "%w", err)
		}
		return unsupported(field, "a VM has no connections to sockets of the host yet")
	}
	const field = "annotations." + annotationVolumes
	volumes, err := oci.ParseVolumes(c.spec.Annotations[annotationVolumes])
	if err != nil {
		return invalid(field, "%w", err)
	}
	seen := map[string]bool{}
	for _, v := range volumes {
		allowed := slices.ContainsFunc(c.Allowed, func(f File) bool { return f.Kind == Volume && f.Path == v.Path })
		switch {
		case !containerv1.ValidID(v.Tag) || seen[v.Tag]:
			return invalid(field, "tag %.64q is repeated, or not a name", v.Tag)
		case !allowed:
			return unsupported(field, "the administrator has not allowed the directory %.200q", v.Path)
		}
		seen[v.Tag] = true
		node, err := c.Host.Node(v.Path)
		if err != nil {
			return fmt.Errorf("%s: %w", field, err)
		}
		if node.Type != Dir {
			return invalid(field, "%.200q is a %s, not a directory", v.Path, node.Type)
		}
		c.share(mount{at: volumesDir + v.Tag}, Tree{Source: v.Path, Dir: true, Recursive: true})
	}
	return nil
}

// quote prints a bounded text on one line.
func quote(text string) string { return fmt.Sprintf("%.64q", text) }
