package service

import (
	"os"

	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
)

// stdio holds the names of a process's streams from its creator. State returns them.
type stdio struct {
	bundle, stdin, stdout, stderr string
}

func (s stdio) parse() (containerv1.Stdio, error) {
	return containerv1.ParseStdio(s.stdin, s.stdout, s.stderr)
}

// removeFiles takes files from the store, nil for an empty name. On an error it closes all of them.
func (s *Services) removeFiles(names ...string) ([]*os.File, error) {
	files := make([]*os.File, len(names))
	for i, name := range names {
		if name == "" {
			continue
		}
		var err error
		if files[i], err = s.o.Files.Remove(name); err != nil {
			for _, f := range files {
				f.Close() // fails on nil
			}
			return nil, err
		}
	}
	return files, nil
}
