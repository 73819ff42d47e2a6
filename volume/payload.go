package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"

	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/volume/atomicdir"
)

// payload collects the files of one volume. A later file replaces an earlier one with the same path.
type payload struct {
	pod         *corev1.Pod
	objects     Objects
	allocatable corev1.ResourceList
	mode        int32 // for items without a mode
	files       []atomicdir.File
	at          map[string]int
}

// collect collects the current files of a volume.
func (p *payload) collect(ctx context.Context, source *corev1.VolumeSource) error {
	switch {
	case source.ConfigMap != nil:
		from := source.ConfigMap
		p.setMode(from.DefaultMode)
		return p.configMap(ctx, from.Name, from.Items, from.Optional)
	case source.Secret != nil:
		from := source.Secret
		p.setMode(from.DefaultMode)
		return p.secret(ctx, from.SecretName, from.Items, from.Optional)
	case source.DownwardAPI != nil:
		p.setMode(source.DownwardAPI.DefaultMode)
		return p.downward(source.DownwardAPI.Items)
	case source.Projected != nil:
		p.setMode(source.Projected.DefaultMode)
		for i := range source.Projected.Sources {
			if err := p.projection(ctx, &source.Projected.Sources[i]); err != nil {
				return err
			}
		}
		return nil
	}
	return errors.New("the volume does not consist of files")
}

func (p *payload) projection(ctx context.Context, source *corev1.VolumeProjection) error {
	switch {
	case source.ConfigMap != nil:
		return p.configMap(ctx, source.ConfigMap.Name, source.ConfigMap.Items, source.ConfigMap.Optional)
	case source.Secret != nil:
		return p.secret(ctx, source.Secret.Name, source.Secret.Items, source.Secret.Optional)
	case source.DownwardAPI != nil:
		return p.downward(source.DownwardAPI.Items)
	case source.ServiceAccountToken != nil:
		return p.token(ctx, source.ServiceAccountToken)
	}
	return errors.New("a source of the volume is not honoured")
}

func (p *payload) token(ctx context.Context, source *corev1.ServiceAccountTokenProjection) error {
	tokens, can := p.objects.(Tokens)
	if !can {
		return errors.New("there is no API server that issues tokens")
	}
	text, err := tokens.Token(ctx, source)
	if err != nil {
		return err
	}
	return p.add(source.Path, nil, text)
}

func (p *payload) setMode(mode *int32) {
	p.mode = corev1.ConfigMapVolumeSourceDefaultMode
	if mode != nil {
		p.mode = *mode
	}
}

func (p *payload) add(name string, mode *int32, data []byte) error {
	name = path.Clean(name)
	if err := atomicdir.CheckPath(name); err != nil {
		return err
	}
	if mode == nil {
		mode = &p.mode
	}
	// The owner, root in the pod and an ordinary user here, must be able to read it.
	file := atomicdir.File{Path: name, Mode: fs.FileMode(*mode)&fs.ModePerm | 0o400, Data: data}
	if context := p.pod.Spec.SecurityContext; context != nil && context.FSGroup != nil {
		file.Mode |= 0o440
	}
	if i, twice := p.at[name]; twice {
		p.files[i] = file
		return nil
	}
	if p.at == nil {
		p.at = map[string]int{}
	}
	p.at[name] = len(p.files)
	p.files = append(p.files, file)
	return nil
}

func (p *payload) configMap(ctx context.Context, name string, items []corev1.KeyToPath, optional *bool) error {
	object, err := p.objects.ConfigMap(ctx, name)
	if errors.Is(err, ErrNotFound) && isTrue(optional) {
		return nil
	}
	if err != nil {
		return err
	}
	all := make(map[string][]byte, len(object.Data)+len(object.BinaryData))
	for key, value := range object.Data {
		all[key] = []byte(value)
	}
	for key, value := range object.BinaryData {
		all[key] = value
	}
	return p.keys("configmap", "config", all, items, optional)
}

func (p *payload) secret(ctx context.Context, name string, items []corev1.KeyToPath, optional *bool) error {
	object, err := p.objects.Secret(ctx, name)
	if errors.Is(err, ErrNotFound) && isTrue(optional) {
		return nil
	}
	if err != nil {
		return err
	}
	return p.keys("secret", "secret", object.Data, items, optional)
}

// keys adds all keys, or those of items.
func (p *payload) keys(kind, of string, all map[string][]byte, items []corev1.KeyToPath, optional *bool) error {
	if len(items) == 0 {
		for key, value := range all {
			if err := p.add(key, nil, value); err != nil {
				return fmt.Errorf("%s: %w", kind, err)
			}
		}
		return nil
	}
	for _, item := range items {
		value, there := all[item.Key]
		if !there {
			if isTrue(optional) {
				continue
			}
			return fmt.Errorf("%s references non-existent %s key: %s", kind, of, item.Key)
		}
		if err := p.add(item.Path, item.Mode, value); err != nil {
			return fmt.Errorf("%s: %w", kind, err)
		}
	}
	return nil
}

func (p *payload) downward(items []corev1.DownwardAPIVolumeFile) error {
	for _, item := range items {
		text, err := p.value(item)
		if err == nil {
			err = p.add(item.Path, item.Mode, []byte(text))
		}
		if err != nil {
			return fmt.Errorf("downward API: %w", err)
		}
	}
	return nil
}

func (p *payload) value(item corev1.DownwardAPIVolumeFile) (string, error) {
	switch {
	case item.FieldRef != nil:
		text, known := Field(p.pod, item.FieldRef.FieldPath)
		if !known {
			return "", fmt.Errorf("field path %q is not supported", item.FieldRef.FieldPath)
		}
		return text, nil
	case item.ResourceFieldRef != nil:
		container := Container(p.pod, item.ResourceFieldRef.ContainerName)
		if container == nil {
			return "", fmt.Errorf("container %s not found", item.ResourceFieldRef.ContainerName)
		}
		return Resource(container, item.ResourceFieldRef, p.allocatable)
	}
	return "", fmt.Errorf("item %s has no source", item.Path)
}

// Container returns the pod's container with that name, nil if there is none.
func Container(pod *corev1.Pod, name string) *corev1.Container {
	for _, list := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	return nil
}
