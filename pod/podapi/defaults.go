package podapi

import (
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bulkhead-project/bulkhead/pod/podspec"
)

const suffixLetters = "bcdfghjklmnpqrstvwxz2456789"

// setDefaults sets the API server's defaults for a new pod, in the fields that Bulkhead uses.
func setDefaults(pod *corev1.Pod) {
	pod.APIVersion, pod.Kind = "v1", "Pod"
	pod.Status = corev1.PodStatus{}
	pod.UID = newUID()
	pod.Generation = 1
	pod.CreationTimestamp = metav1.NewTime(time.Now().Truncate(time.Second))
	if pod.Name == "" && pod.GenerateName != "" {
		random := make([]byte, 5)
		_, _ = rand.Read(random) // never fails
		for i, b := range random {
			random[i] = suffixLetters[int(b)%len(suffixLetters)]
		}
		pod.Name = pod.GenerateName + string(random)
	}
	if pod.Namespace == "" {
		pod.Namespace = metav1.NamespaceDefault
	}
	spec := &pod.Spec
	setDefault(&spec.RestartPolicy, corev1.RestartPolicyAlways)
	setDefault(&spec.DNSPolicy, corev1.DNSClusterFirst)
	switch grace := spec.TerminationGracePeriodSeconds; {
	case grace == nil:
		spec.TerminationGracePeriodSeconds = new(int64(corev1.DefaultTerminationGracePeriodSeconds))
	case *grace < 0:
		spec.TerminationGracePeriodSeconds = new(int64(1)) // like the API server
	}
	if spec.SecurityContext == nil {
		spec.SecurityContext = &corev1.PodSecurityContext{}
	}
	for i := range spec.Volumes {
		volumeDefaults(&spec.Volumes[i].VolumeSource)
	}
	for c := range podspec.All(spec) {
		containerDefaults(c)
	}
	podResourceDefaults(spec)
}

// podResourceDefaults sets missing requests of a pod with limits: to the sum of its containers' requests, else to the
// limit.
func podResourceDefaults(spec *corev1.PodSpec) {
	own := spec.Resources
	if own == nil {
		return
	}
	for name, limit := range own.Limits {
		if _, set := own.Requests[name]; set {
			continue
		}
		if own.Requests == nil {
			own.Requests = corev1.ResourceList{}
		}
		var sum resource.Quantity
		for i := range spec.Containers {
			sum.Add(spec.Containers[i].Resources.Requests[name])
		}
		if sum.IsZero() || isHuge(name) {
			sum = limit
		}
		own.Requests[name] = sum
	}
}

func containerDefaults(container *corev1.Container) {
	setDefault(&container.TerminationMessagePath, corev1.TerminationMessagePathDefault)
	setDefault(&container.TerminationMessagePolicy, corev1.TerminationMessageReadFile)
	setDefault(&container.ImagePullPolicy, pullPolicy(container.Image))
	for i := range container.Ports {
		setDefault(&container.Ports[i].Protocol, corev1.ProtocolTCP)
	}
	for i := range container.Env {
		if from := container.Env[i].ValueFrom; from != nil && from.FieldRef != nil {
			setDefault(&from.FieldRef.APIVersion, "v1")
		}
	}
	for _, probe := range []*corev1.Probe{container.LivenessProbe, container.ReadinessProbe, container.StartupProbe} {
		probeDefaults(probe)
	}
	if container.Lifecycle != nil {
		for _, hook := range []*corev1.LifecycleHandler{container.Lifecycle.PostStart, container.Lifecycle.PreStop} {
			if hook != nil {
				httpGetDefaults(hook.HTTPGet)
			}
		}
	}
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		known := slices.ContainsFunc(container.ResizePolicy, func(p corev1.ContainerResizePolicy) bool { return p.ResourceName == name })
		if !known && states(container.Resources, name) {
			container.ResizePolicy = append(container.ResizePolicy,
				corev1.ContainerResizePolicy{ResourceName: name, RestartPolicy: corev1.NotRequired})
		}
	}
	requests := container.Resources.Requests
	for name, quantity := range container.Resources.Limits {
		if _, set := requests[name]; !set {
			if requests == nil {
				requests = corev1.ResourceList{}
			}
			requests[name] = quantity
		}
	}
	container.Resources.Requests = requests
}

func volumeDefaults(source *corev1.VolumeSource) {
	if *source == (corev1.VolumeSource{}) {
		source.EmptyDir = &corev1.EmptyDirVolumeSource{}
	}
	// fileMode sets the API's default for the files of a volume.
	fileMode := func(mode **int32) {
		if *mode == nil {
			value := corev1.ConfigMapVolumeSourceDefaultMode
			*mode = &value
		}
	}
	fields := func(items []corev1.DownwardAPIVolumeFile) {
		for i := range items {
			if ref := items[i].FieldRef; ref != nil {
				setDefault(&ref.APIVersion, "v1")
			}
		}
	}
	if from := source.Image; from != nil {
		setDefault(&from.PullPolicy, pullPolicy(from.Reference))
	}
	if from := source.ConfigMap; from != nil {
		fileMode(&from.DefaultMode)
	}
	if from := source.Secret; from != nil {
		fileMode(&from.DefaultMode)
	}
	if from := source.DownwardAPI; from != nil {
		fileMode(&from.DefaultMode)
		fields(from.Items)
	}
	if from := source.Projected; from != nil {
		fileMode(&from.DefaultMode)
		for _, one := range from.Sources {
			if one.DownwardAPI != nil {
				fields(one.DownwardAPI.Items)
			}
		}
	}
}

// states reports whether a container has a limit or request for the resource.
func states(r corev1.ResourceRequirements, name corev1.ResourceName) bool {
	_, limited := r.Limits[name]
	_, requested := r.Requests[name]
	return limited || requested
}

// pullPolicy returns Always for the tag latest and IfNotPresent for others, like the API server. Images of "localhost"
// exist only in the local store, so they are never pulled.
func pullPolicy(image string) corev1.PullPolicy {
	name := image[strings.LastIndex(image, "/")+1:]
	_, digest, _ := strings.Cut(name, "@")
	_, tag, _ := strings.Cut(strings.TrimSuffix(name, "@"+digest), ":")
	if strings.HasPrefix(image, "localhost/") || digest != "" || tag != "" && tag != "latest" {
		return corev1.PullIfNotPresent
	}
	return corev1.PullAlways
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// newUID returns a random UUID (version 4).
func newUID() types.UID {
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	id[6] = id[6]&0x0f | 0x40
	id[8] = id[8]&0x3f | 0x80
	return types.UID(fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:]))
}
