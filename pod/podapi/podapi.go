// Package podapi reads the pods that a user gives, and the objects that they
// refer to: YAML documents, decoded strictly, with the API server's defaults and
// validation.
//
// What Bulkhead does with each field of the API is said by package fields. A field
// that is not honoured is refused by name.
package podapi

import (
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// The classes of this package's errors, matched with errors.Is.
var (
	// ErrSyntax: the text is not YAML, or not of the API's form.
	ErrSyntax = errors.New("not a pod")
	// ErrInvalid: a field's value is not allowed by the API.
	ErrInvalid = errors.New("invalid pod")
	// ErrNotHonoured: a valid field that Bulkhead refuses.
	ErrNotHonoured = errors.New("not honoured")
)

// FieldError is one fault of a document: where it is and what it is.
type FieldError struct {
	File    string // as given to Decode
	Line    int    // 1-based; 0 where it is not known
	Field   string // a path such as spec.containers[0].image; may be empty
	Message string
	class   error
}

func (p *FieldError) Error() string {
	where := p.File
	if p.Line > 0 {
		where = fmt.Sprintf("%s:%d", where, p.Line)
	}
	if p.Field == "" {
		return where + ": " + p.Message
	}
	return where + ": " + p.Field + ": " + p.Message
}

// Unwrap gives the class.
func (p *FieldError) Unwrap() error { return p.class }

// FieldErrors are all the faults of the documents; errors.As finds it, and each of
// its entries. Its message is one line, that of the first few and a count.
type FieldErrors []*FieldError

// told is how many faults are in the message.
const told = 3

func (p FieldErrors) Error() string {
	var texts []string
	for _, one := range p[:min(len(p), told)] {
		texts = append(texts, one.Error())
	}
	text := strings.Join(texts, "; ")
	if len(p) > told {
		text += fmt.Sprintf(" (and %d more)", len(p)-told)
	}
	return text
}

// Detail are all the faults, a line each, if the message does not name them.
func (p FieldErrors) Detail() string {
	if len(p) <= told {
		return ""
	}
	var b strings.Builder
	for _, one := range p {
		fmt.Fprintln(&b, one)
	}
	return b.String()
}

// Unwrap gives the single faults.
func (p FieldErrors) Unwrap() []error {
	var out []error
	for _, problem := range p {
		out = append(out, problem)
	}
	return out
}

// Documents are the objects of some YAML documents, in their order.
type Documents struct {
	// Pods are defaulted, validated and have a UID. Those of workloads are
	// among them.
	Pods []*corev1.Pod
	// ConfigMaps and Secrets are validated and have a namespace; a Secret's
	// stringData is merged into its data.
	ConfigMaps []*corev1.ConfigMap
	Secrets    []*corev1.Secret
	// Claims are defaulted and validated, and have a namespace. Those of StatefulSets' pods
	// are among them.
	Claims []*corev1.PersistentVolumeClaim
	// Warnings tell what was skipped, one line for each kind of object.
	Warnings []string
}

// File is one file that is read.
type File struct {
	Name string // for messages
	Data []byte
}

// Options say how files are read.
type Options struct {
	// IgnoreUnsupported skips objects that only a cluster can have, such as a
	// Service, instead of refusing them. A kind that nobody knows is refused all
	// the same.
	IgnoreUnsupported bool
}

// ReadAll reads the YAML (or JSON) documents in files: v1 Pods, ConfigMaps, Secrets
// and PersistentVolumeClaims, the workloads that are made of pods, and Lists of all these. Every
// fault found is in the error, which is a FieldErrors; then there are no objects.
// A file without any object at all is an error, as are two objects of one kind
// and name. What is read is bounded, as is what its aliases and replicas stand
// for, so that any file is read or refused in little time and memory.
func ReadAll(files []File, options Options) (*Documents, error) {
	d := &decoder{options: options, places: map[string]string{}, skipped: map[string]*skipped{}}
	for _, f := range files {
		d.read(f)
	}
	if len(d.problems) > 0 {
		return nil, d.problems
	}
	d.found.Warnings = d.warnings()
	return &d.found, nil
}

// Read is ReadAll of one file.
func Read(name string, data []byte) (*Documents, error) {
	return ReadAll([]File{{Name: name, Data: data}}, Options{})
}

// Decode is Read for who looks for pods alone: documents without a pod are an
// error too.
func Decode(name string, data []byte) ([]*corev1.Pod, error) {
	found, err := Read(name, data)
	if err != nil {
		return nil, err
	}
	if len(found.Pods) == 0 {
		return nil, FieldErrors{{File: name, Message: "no pod in it", class: ErrSyntax}}
	}
	return found.Pods, nil
}
