package text

import (
	"fmt"
	"regexp"
	"strings"
)

// size is one as podman writes it: a number of bytes, or of units of 1024 with b, k, m, g or t
// after it. The form of a Pod (256Mi) is taken as it is.
var size = regexp.MustCompile(`^([0-9]+)([bkmgt]?)b?$`)

// Quantity makes a quantity of the Kubernetes API of a size in bytes that somebody has typed.
func Quantity(typed string) (string, error) {
	if strings.HasSuffix(typed, "i") {
		return typed, nil
	}
	m := size.FindStringSubmatch(strings.ToLower(typed))
	if m == nil {
		return "", fmt.Errorf("%.64q: give a number with k, m or g, as 512m", typed)
	}
	unit := map[string]string{"k": "Ki", "m": "Mi", "g": "Gi", "t": "Ti"}[m[2]]
	return m[1] + unit, nil
}
