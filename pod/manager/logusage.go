package manager

import (
	"path/filepath"

	"github.com/bulkhead-project/bulkhead/pod/manager/logs"
)

// LogUsage is what the logs of a container take of the disk, in bytes, and how many files they are.
func (p *Pod) LogUsage(container string) (bytes, files uint64) {
	return logs.Usage(filepath.Join(p.dir, logsDir, container))
}
