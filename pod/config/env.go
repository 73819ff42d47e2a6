package config

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/bulkhead-project/bulkhead/volume"
)

// variable is one entry of a container's environment.
type variable struct{ name, value string }

// Skipped are the keys of an object that are not valid names of variables.
type Skipped struct {
	Source string // "configMap" or "secret"
	Name   string // of the object
	Keys   []string
}

// environment resolves a container's variables: first envFrom, then env in order. A value may refer to earlier
// variables and to the variables of Services. A later variable replaces an earlier one in its place. Variables of
// Services that were not replaced come last.
type environment struct {
	o         *Options
	container *corev1.Container
	with      Launch

	out     []variable
	places  map[string]int
	skipped []Skipped
	links   map[string]string // the variables of Services
}

func resolveEnvironment(ctx context.Context, o *Options, container *corev1.Container, with Launch) (*environment, error) {
	e := &environment{o: o, container: container, with: with, places: map[string]int{}, links: map[string]string{}}
	services, err := e.services(ctx)
	if err != nil {
		return nil, err
	}
	for i := range container.EnvFrom {
		if err := e.from(ctx, &container.EnvFrom[i]); err != nil {
			return nil, err
		}
	}
	for i := range container.Env {
		entry := &container.Env[i]
		value, set, err := expand(entry.Value, e.lookup), true, error(nil)
		if entry.Value == "" && entry.ValueFrom != nil {
			value, set, err = e.source(ctx, entry.ValueFrom)
		}
		if err != nil {
			return nil, err
		}
		if set {
			e.set(entry.Name, value)
		}
	}
	for _, v := range services {
		if _, known := e.places[v.name]; !known {
			e.set(v.name, v.value)
		}
	}
	return e, nil
}

// services adds the variables of Services to links, and returns them in order.
func (e *environment) services(ctx context.Context) ([]variable, error) {
	if e.o.Services == nil {
		return nil, nil
	}
	list, err := e.o.Services(ctx)
	if err != nil {
		return nil, err
	}
	out := serviceVariables(e.o.Pod, list)
	for _, v := range out {
		e.links[v.name] = v.value
	}
	return out, nil
}

func (e *environment) lookup(name string) (string, bool) {
	if place, known := e.places[name]; known {
		return e.out[place].value, true
	}
	value, known := e.links[name]
	return value, known
}

func (e *environment) set(name, value string) {
	if place, known := e.places[name]; known {
		e.out[place].value = value
		return
	}
	e.places[name] = len(e.out)
	e.out = append(e.out, variable{name, value})
}

// from adds the keys of a whole object, except those that are not valid names.
func (e *environment) from(ctx context.Context, from *corev1.EnvFromSource) error {
	values := map[string]string{}
	note := Skipped{}
	switch {
	case from.ConfigMapRef != nil:
		note = Skipped{Source: "configMap", Name: from.ConfigMapRef.Name}
		object, err := e.o.AllObjects().ConfigMap(ctx, note.Name)
		if err != nil {
			return e.missing(err, from.ConfigMapRef.Optional, "ConfigMap", note.Name)
		}
		values = object.Data
	case from.SecretRef != nil:
		note = Skipped{Source: "secret", Name: from.SecretRef.Name}
		object, err := e.o.AllObjects().Secret(ctx, note.Name)
		if err != nil {
			return e.missing(err, from.SecretRef.Optional, "Secret", note.Name)
		}
		for key, value := range object.Data {
			values[key] = string(value)
		}
	}
	var names []string
	for key := range values {
		if name := from.Prefix + key; len(validation.IsRelaxedEnvVarName(name)) == 0 {
			names = append(names, key)
		} else {
			note.Keys = append(note.Keys, name)
		}
	}
	slices.Sort(names)
	for _, key := range names {
		e.set(from.Prefix+key, values[key])
	}
	if len(note.Keys) > 0 {
		slices.Sort(note.Keys)
		e.skipped = append(e.skipped, note)
	}
	return nil
}

// missing returns err, or nil if an optional object does not exist. It notes both.
func (e *environment) missing(err error, optional *bool, kind, name string) error {
	if !errors.Is(err, volume.ErrNotFound) {
		e.note(optional, kind+"Read", "%s %q could not be read: %v", kind, name, err)
		return err
	}
	e.note(optional, kind+"NotFound", "%s %q not found", kind, name)
	if optional != nil && *optional {
		return nil
	}
	return err
}

// note reports a reference of a container's variables that cannot be resolved, with Virtual Kubelet's reasons.
func (e *environment) note(optional *bool, what, format string, args ...any) {
	if e.with.Note == nil {
		return
	}
	need := "Mandatory"
	if optional != nil && *optional {
		need = "Optional"
	}
	reason := need + what
	if kind, failed := strings.CutSuffix(what, "Read"); failed {
		reason = "FailedToRead" + need + kind
	}
	e.with.Note(reason, fmt.Sprintf(format, args...))
}

// source resolves a reference. An optional reference to a missing object or key is not set.
func (e *environment) source(ctx context.Context, from *corev1.EnvVarSource) (value string, set bool, err error) {
	switch {
	case from.FieldRef != nil:
		value, err = e.field(from.FieldRef.FieldPath)
		return value, err == nil, err
	case from.ResourceFieldRef != nil:
		value, err = e.resource(from.ResourceFieldRef)
		return value, err == nil, err
	case from.ConfigMapKeyRef != nil:
		ref := from.ConfigMapKeyRef
		object, err := e.o.AllObjects().ConfigMap(ctx, ref.Name)
		if err != nil {
			return "", false, e.missing(err, ref.Optional, "ConfigMap", ref.Name)
		}
		value, set := object.Data[ref.Key]
		return e.key(value, set, ref.Optional, "ConfigMap", ref.Name, ref.Key)
	case from.SecretKeyRef != nil:
		ref := from.SecretKeyRef
		object, err := e.o.AllObjects().Secret(ctx, ref.Name)
		if err != nil {
			return "", false, e.missing(err, ref.Optional, "Secret", ref.Name)
		}
		value, set := object.Data[ref.Key]
		return e.key(string(value), set, ref.Optional, "Secret", ref.Name, ref.Key)
	}
	return "", false, errors.New("a source of the environment is not honoured")
}

func (e *environment) key(value string, set bool, optional *bool, kind, name, key string) (string, bool, error) {
	if !set {
		e.note(optional, kind+"KeyNotFound", "key %q not found in %s %q", key, kind, name)
	}
	if !set && (optional == nil || !*optional) {
		return "", false, fmt.Errorf("couldn't find key %s in %s %s/%s", key, kind, e.o.Pod.Namespace, name)
	}
	return value, set, nil
}

func (e *environment) resource(ref *corev1.ResourceFieldSelector) (string, error) {
	container := e.container
	if ref.ContainerName != "" {
		container = volume.Container(e.o.Pod, ref.ContainerName)
	}
	if container == nil {
		return "", fmt.Errorf("container %s not found", ref.ContainerName)
	}
	return volume.Resource(container, ref, e.with.Allocatable)
}

// field returns a field of the pod as the downward API shows it in environment variables.
func (e *environment) field(path string) (string, error) {
	pod, ips := e.o.Pod, e.with.IPs
	if pod.Spec.HostNetwork && e.o.HostIP != "" {
		ips = []string{e.o.HostIP}
	}
	if value, known := volume.Field(pod, path); known {
		return value, nil
	}
	switch path {
	case "spec.nodeName":
		if pod.Spec.NodeName == "" {
			return e.o.NodeName, nil
		}
		return pod.Spec.NodeName, nil
	case "spec.serviceAccountName":
		return pod.Spec.ServiceAccountName, nil
	case "status.hostIP", "status.hostIPs":
		return e.o.HostIP, nil
	case "status.podIP":
		if len(ips) == 0 {
			return "", nil
		}
		return ips[0], nil
	case "status.podIPs":
		return strings.Join(ips, ","), nil
	}
	return "", fmt.Errorf("field path %q is not supported", path)
}
