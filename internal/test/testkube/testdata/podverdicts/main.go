// Command podverdicts reads lines of v1 Pods in JSON on its standard input, and writes a line with the API server's
// verdict for each: the faults as a JSON list, empty for a valid pod. Tests compare Bulkhead's own validation with it.
// It is a module of its own, so that Bulkhead does not depend on its dependencies.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	podutil "k8s.io/kubernetes/pkg/api/pod"
	"k8s.io/kubernetes/pkg/apis/core"
	_ "k8s.io/kubernetes/pkg/apis/core/install" // the types and their defaults
	"k8s.io/kubernetes/pkg/apis/core/validation"
	"k8s.io/kubernetes/pkg/capabilities"
)

func main() {
	capabilities.Setup(true, 0) // privileged containers are allowed, as in present API servers
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 16<<20)
	out := json.NewEncoder(os.Stdout)
	for in.Scan() {
		if err := out.Encode(verdict(in.Bytes())); err != nil {
			fmt.Fprintln(os.Stderr, "podverdicts:", err)
			os.Exit(1)
		}
	}
	if err := in.Err(); err != nil {
		fmt.Fprintln(os.Stderr, "podverdicts:", err)
		os.Exit(1)
	}
}

// verdict returns the faults that the API server finds in a new pod.
func verdict(text []byte) []string {
	faults := []string{}
	pod, internal := &corev1.Pod{}, &core.Pod{}
	if err := json.Unmarshal(text, pod); err != nil {
		return append(faults, err.Error())
	}
	if pod.Namespace == "" {
		pod.Namespace = "default"
	}
	legacyscheme.Scheme.Default(pod)
	if err := legacyscheme.Scheme.Convert(pod, internal, nil); err != nil {
		return append(faults, err.Error())
	}
	opts := podutil.GetValidationOptionsFromPodSpecAndMeta(&internal.Spec, nil, &internal.ObjectMeta, nil)
	opts.ResourceIsPod = true
	for _, fault := range validation.ValidatePodCreate(internal, opts) {
		faults = append(faults, fault.Error())
	}
	return faults
}
