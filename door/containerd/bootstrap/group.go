package bootstrap

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
)

// maxSpec bounds config.json, in bytes.
const maxSpec = 16 << 20

// groupAnnotations name the group of containers that share a front. The first one in a bundle counts.
var groupAnnotations = []string{"io.containerd.runc.v2.group", "io.kubernetes.cri.sandbox-id"}

// GroupOf returns the group of the bundle with a configuration, and id if it names none. A sandbox of the Sandbox API
// has no configuration.
func GroupOf(config, id string) (string, error) {
	f, err := os.Open(config)
	if errors.Is(err, os.ErrNotExist) {
		return id, nil
	}
	if err != nil {
		return "", fmt.Errorf("find the group of %s: %w", id, err)
	}
	defer f.Close()
	var spec struct {
		Annotations map[string]string `json:"annotations"`
	}
	if err := json.NewDecoder(io.LimitReader(f, maxSpec)).Decode(&spec); err != nil {
		return "", fmt.Errorf("find the group of %s: read %s: %w", id, config, err)
	}
	for _, name := range groupAnnotations {
		group := spec.Annotations[name]
		switch {
		case group == "":
		case !ValidID(group):
			return "", fmt.Errorf("find the group of %s: annotation %s: %.80q must be an id", id, name, group)
		default:
			return group, nil
		}
	}
	return id, nil
}
