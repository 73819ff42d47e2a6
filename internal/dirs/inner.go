package dirs

import (
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
)

// innerName is the name of the directories of an engine in another user namespace. The user's own engine has others. The two
// cannot share: they see other owners of files, and neither has the rights of the other.
const innerName = "bh-inner"

// inner returns the roots of an engine in a user namespace of that user's. Podman names to its runtime only the runtime
// directory, so that alone decides where the state is.
func (r Roots) inner(uid int) (Roots, error) {
	data := os.Getenv("XDG_DATA_HOME")
	if !filepath.IsAbs(data) && r.Data == "" {
		home := os.Getenv("HOME")
		if !filepath.IsAbs(home) {
			owner, err := user.LookupId(strconv.Itoa(uid))
			if err != nil {
				return Roots{}, fmt.Errorf("find the data directory: %w (set HOME or BULKHEAD_DATA)", err)
			}
			home = owner.HomeDir
		}
		data = filepath.Join(home, ".local", "share")
	}
	state := userState(ownRuntime(os.Getenv("XDG_RUNTIME_DIR")), "", uid, innerName, "bi")
	return r.withDefaults(filepath.Join(data, innerName), state), nil
}
