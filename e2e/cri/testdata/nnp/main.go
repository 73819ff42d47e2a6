// Command nnp tells its user, as the image nonewprivs of Kubernetes' tests does.
package main

import (
	"fmt"
	"os"
)

func main() { fmt.Printf("Effective uid: %d\n", os.Geteuid()) }
