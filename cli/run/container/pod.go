package run

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/bulkhead-project/bulkhead/cli/internal/app"
	"github.com/bulkhead-project/bulkhead/door/run/api"
)

// The part of a Pod that the flags can say.
type (
	podDocument struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Metadata   struct {
			Name        string            `json:"name"`
			Annotations map[string]string `json:"annotations,omitempty"`
		} `json:"metadata"`
		Spec struct {
			RestartPolicy string      `json:"restartPolicy"`
			Containers    []container `json:"containers"`
			Volumes       []volume    `json:"volumes,omitempty"`
		} `json:"spec"`
	}
	container struct {
		Name            string            `json:"name"`
		Image           string            `json:"image"`
		ImagePullPolicy string            `json:"imagePullPolicy"`
		Command         []string          `json:"command,omitempty"`
		Args            []string          `json:"args,omitempty"`
		WorkingDir      string            `json:"workingDir,omitempty"`
		Env             []variable        `json:"env,omitempty"`
		Stdin           bool              `json:"stdin,omitempty"`
		StdinOnce       bool              `json:"stdinOnce,omitempty"`
		TTY             bool              `json:"tty,omitempty"`
		Resources       *resources        `json:"resources,omitempty"`
		SecurityContext map[string]uint32 `json:"securityContext,omitempty"`
		VolumeMounts    []volumeMount     `json:"volumeMounts,omitempty"`
		VolumeDevices   []volumeDevice    `json:"volumeDevices,omitempty"`
	}
	variable struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	}
	resources struct {
		Limits map[string]string `json:"limits"`
	}
)

// manifest is the Pod that runs an image with arguments of its own, none for the
// image's.
func (f imageFlags) manifest(image string, args []string) (api.Manifest, error) {
	base := baseName(image)
	c := container{
		Name: base, Image: image, Args: verbatim(args), WorkingDir: f.workdir,
		Stdin: f.stdin, StdinOnce: f.stdin, TTY: f.tty,
	}
	for _, apply := range []func(*container) error{f.setEntrypoint, f.setEnv, f.setLimits, f.setUser, f.setPull} {
		if err := apply(&c); err != nil {
			return api.Manifest{}, err
		}
	}
	p := podDocument{APIVersion: "v1", Kind: "Pod"}
	if p.Metadata.Name = f.name; f.name == "" {
		p.Metadata.Name = base + "-" + strings.ToLower(rand.Text()[:5])
	}
	p.Spec.RestartPolicy, p.Spec.Containers = "Never", []container{c}
	f.volumes.setVolumes(&p)
	raw, err := json.Marshal(p)
	if err != nil {
		return api.Manifest{}, fmt.Errorf("describe the pod of %s: %w", image, err)
	}
	return api.Manifest{Name: "image " + image, YAML: string(raw)}, nil
}

var notOfName = regexp.MustCompile(`[^a-z0-9]+`)

// baseName is the last part of an image's name, as a container may be called.
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

// verbatim keeps a Pod's $(NAME) from being replaced in what a user has typed.
func verbatim(texts []string) (out []string) {
	for _, text := range texts {
		out = append(out, strings.ReplaceAll(text, "$", "$$"))
	}
	return out
}

func (f imageFlags) setEntrypoint(c *container) error {
	if f.entrypoint == "" {
		return nil
	}
	command := []string{f.entrypoint}
	if strings.HasPrefix(f.entrypoint, "[") {
		command = nil
		if err := json.Unmarshal([]byte(f.entrypoint), &command); err != nil || len(command) == 0 {
			return fmt.Errorf(`--entrypoint %q: give a program, or a list as ["sh","-c"]`, f.entrypoint)
		}
	}
	c.Command = verbatim(command)
	return nil
}

func (f imageFlags) setEnv(c *container) error {
	env, err := app.Environment(f.env)
	for _, text := range env {
		name, value, _ := strings.Cut(text, "=")
		c.Env = append(c.Env, variable{name, verbatim([]string{value})[0]})
	}
	return err
}

func (f imageFlags) setLimits(c *container) error {
	limits := map[string]string{}
	for _, l := range []struct {
		resource, typed string
		read            func(string) (string, error)
	}{{"cpu", f.cpus, cpusOf}, {"memory", f.memory, memoryOf}} {
		if l.typed == "" {
			continue
		}
		quantity, err := l.read(l.typed)
		if err != nil {
			return err
		}
		limits[l.resource] = quantity
	}
	if len(limits) > 0 {
		c.Resources = &resources{limits}
	}
	return nil
}

func (f imageFlags) setUser(c *container) error {
	if f.user == "" {
		return nil
	}
	user, group, both := strings.Cut(f.user, ":")
	ids := map[string]string{"runAsUser": user}
	if both {
		ids["runAsGroup"] = group
	}
	c.SecurityContext = map[string]uint32{}
	for field, text := range ids {
		id, err := strconv.ParseUint(text, 10, 31)
		if err != nil {
			return fmt.Errorf("--user %q: give numbers, UID or UID:GID: a Pod has no names of users", f.user)
		}
		c.SecurityContext[field] = uint32(id)
	}
	return nil
}

func (f imageFlags) setPull(c *container) error {
	policy, ok := map[string]string{"missing": "IfNotPresent", "always": "Always", "never": "Never"}[f.imagePullPolicy]
	if !ok {
		return fmt.Errorf("--pull %q: use missing or always or never", f.imagePullPolicy)
	}
	c.ImagePullPolicy = policy
	return nil
}
