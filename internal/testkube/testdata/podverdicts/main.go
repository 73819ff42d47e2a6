// Command podverdicts tells for each line of its standard input, a v1 Pod in JSON, what the API server
// says of it: a line with the faults as a JSON list, which is empty for a pod that it takes. Tests compare
// Bulkhead's own validation with it. It is a module of its own, so that none of this is a dependency of
// Bulkhead's.
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
	capabilities.Setup(true, 0) // privileged containers are allowed, as an API server of today has it
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

// verdict are the faults that the API server finds in a pod that is created.
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
