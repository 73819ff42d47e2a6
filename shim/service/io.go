package service

import (
	"os"

	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
)

// stdio is a process's as its creator named it, and as State tells it again.
type stdio struct {
	bundle, stdin, stdout, stderr string
}

func (s stdio) parse() (containerv1.Stdio, error) {
	return containerv1.ParseStdio(s.stdin, s.stdout, s.stderr)
}

// takeFiles are what a container takes from the store, nil for an empty name; on
// an error none is open.
func (s *Services) takeFiles(names ...string) ([]*os.File, error) {
	files := make([]*os.File, len(names))
	for i, name := range names {
		if name == "" {
			continue
		}
		var err error
		if files[i], err = s.o.Files.Take(name); err != nil {
			for _, f := range files {
				f.Close() // fails on one that is nil
			}
			return nil, err
		}
	}
	return files, nil
}
