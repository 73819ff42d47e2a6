package container

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"github.com/bulkhead-project/bulkhead/door/run/api"
)

// Manifest returns the Pod that runs an image with args. Without args, the image's own arguments are used.
func (f *Flags) Manifest(image string, args []string) (api.Manifest, error) {
	if len(args) > 0 && args[0] == "--" { // kubectl users end the flags with it
		args = args[1:]
	}
	base := baseName(image)
	p := podDocument{APIVersion: "v1", Kind: "Pod"}
	p.Metadata.Name = base + "-" + strings.ToLower(rand.Text()[:5])
	p.Spec.Containers = []container{{
		Name: base, Image: image, Args: verbatim(args), Stdin: f.Stdin, StdinOnce: f.Stdin, TTY: f.TTY,
	}}
	f.security.seccompDir = f.SeccompDir
	for _, g := range f.groups() {
		if err := g.apply(&p); err != nil {
			return api.Manifest{}, err
		}
	}
	raw, err := json.Marshal(p)
	if err != nil {
		return api.Manifest{}, fmt.Errorf("describe the pod of %s: %w", image, err)
	}
	return api.Manifest{Name: "image " + image, YAML: string(raw)}, nil
}

var notOfName = regexp.MustCompile(`[^a-z0-9]+`)

// baseName returns the last part of an image's name, in the form of a container's name.
func baseName(image string) string {
	image, _, _ = strings.Cut(image, "@")
	image = image[strings.LastIndexByte(image, '/')+1:]
	image, _, _ = strings.Cut(image, ":")
	image = strings.Trim(notOfName.ReplaceAllString(strings.ToLower(image), "-"), "-")
	image = strings.TrimRight(image[:min(len(image), 50)], "-")
	if image == "" {
		return "container"
	}
	return image
}

// verbatim escapes $ in typed text, so that a Pod does not replace $(NAME).
func verbatim(texts []string) (out []string) {
	for _, text := range texts {
		out = append(out, strings.ReplaceAll(text, "$", "$$"))
	}
	return out
}
