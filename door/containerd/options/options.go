// Package options reads the runtime options that containerd's clients give for a runtime.
//
// Clients send them in two forms. The first is runc's message, which ctr, docker and nerdctl send for every runtime. The
// second is the generic message of containerd's CRI plugin and of docker: it names a TOML file, or contains the TOML of the
// runtime's section "options" in containerd's configuration:
//
//	[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.bulkhead.options]
//	  VCPUs = 2
//	  MemoryMiB = 2048
package options

import (
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
	"github.com/containerd/containerd/api/types/runc/options"
	runtimeoptions "github.com/containerd/containerd/api/types/runtimeoptions/v1"
	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// Options are the options that have an effect. A key in TOML is a field's name, in upper or lower case.
type Options struct {
	// VCPUs and MemoryMiB are the size of a VM if its container states none; 0 means the door's default.
	VCPUs, MemoryMiB int
	// Strict refuses every setting of a container that a VM cannot honour, instead of ignoring it.
	Strict bool
	// SystemdCgroup means that cgroup paths have systemd's form slice:prefix:name.
	SystemdCgroup bool
	// ShimCgroup is the cgroup for the front.
	ShimCgroup string
	// PodAnnotations are patterns (path.Match) of the annotations that a pod may give its VM, such as "io.bulkhead.*",
	// with sandboxer = "shim". With "podsandbox", containerd's own setting pod_annotations selects them.
	PodAnnotations []string
}

// KeepsAnnotation reports whether a pod may give its VM the annotation.
func (o Options) KeepsAnnotation(key string) bool {
	return slices.ContainsFunc(o.PodAnnotations, func(pattern string) bool {
		ok, err := path.Match(pattern, key)
		return err == nil && ok
	})
}

var errInvalid = errdefs.ErrInvalidArgument.WithMessage("invalid runtime options")

// The types of options, by the ends of their URLs. Containerd 1.x writes the bare names.
const (
	runcType    = "containerd.runc.v1.Options"
	genericType = "runtimeoptions.v1.Options"
)

// Bounds of TOML.
const (
	maxTOML   = 1 << 20
	maxVCPUs  = 1024
	maxMemory = 64 << 20 // MiB
)

// Parse returns the options in a message. A nil message and one without a value mean no options.
func Parse(message *anypb.Any) (Options, error) {
	if len(message.GetValue()) == 0 {
		return Options{}, nil
	}
	url := message.TypeUrl
	switch {
	case strings.HasSuffix(url, runcType):
		return runc(message.Value)
	case strings.HasSuffix(url, genericType):
		return generic(message.Value)
	}
	return Options{}, fmt.Errorf("%w: type %.100q: must be %s or %s", errInvalid, url, runcType, genericType)
}

// Find returns the options among extensions, which may have other types too.
func Find(extensions []*anypb.Any) (Options, error) {
	for _, e := range extensions {
		if url := e.GetTypeUrl(); strings.HasSuffix(url, runcType) || strings.HasSuffix(url, genericType) {
			return Parse(e)
		}
	}
	return Options{}, nil
}

// runc reads runc's options. The other fields are about runc's program, CRIU and pipes, which a VM does not have.
func runc(value []byte) (Options, error) {
	var o options.Options
	if err := proto.Unmarshal(value, &o); err != nil {
		return Options{}, fmt.Errorf("%w: %w", errInvalid, err)
	}
	return Options{SystemdCgroup: o.SystemdCgroup, ShimCgroup: o.ShimCgroup}, nil
}

func generic(value []byte) (Options, error) {
	var o runtimeoptions.Options
	if err := proto.Unmarshal(value, &o); err != nil {
		return Options{}, fmt.Errorf("%w: %w", errInvalid, err)
	}
	if o.ConfigPath == "" {
		return fromTOML(string(o.ConfigBody))
	}
	f, err := os.Open(o.ConfigPath)
	if err != nil {
		return Options{}, fmt.Errorf("%w: ConfigPath: %w", errInvalid, err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxTOML+1))
	if err != nil {
		return Options{}, fmt.Errorf("%w: ConfigPath: %w", errInvalid, err)
	}
	return fromTOML(string(text))
}

func fromTOML(text string) (Options, error) {
	if len(text) > maxTOML {
		return Options{}, fmt.Errorf("%w: must be at most %d bytes", errInvalid, maxTOML)
	}
	var file struct {
		Options
		TypeURL, ConfigPath string // containerd's own keys
	}
	keys, err := toml.Decode(text, &file)
	if err != nil {
		return Options{}, fmt.Errorf("%w: %w", errInvalid, err)
	}
	if unknown := keys.Undecoded(); len(unknown) > 0 {
		return Options{}, fmt.Errorf("%w: unknown key %.80q: must be VCPUs, MemoryMiB, Strict, SystemdCgroup, ShimCgroup or PodAnnotations",
			errInvalid, unknown[0].String())
	}
	o := file.Options
	if o.VCPUs < 0 || o.VCPUs > maxVCPUs {
		return Options{}, fmt.Errorf("%w: VCPUs %d: must be 0 to %d", errInvalid, o.VCPUs, maxVCPUs)
	}
	if o.MemoryMiB < 0 || o.MemoryMiB > maxMemory {
		return Options{}, fmt.Errorf("%w: MemoryMiB %d: must be 0 to %d", errInvalid, o.MemoryMiB, maxMemory)
	}
	for _, pattern := range o.PodAnnotations {
		if _, err := path.Match(pattern, ""); err != nil {
			return Options{}, fmt.Errorf("%w: PodAnnotations: %.80q: %w", errInvalid, pattern, err)
		}
	}
	return o, nil
}
