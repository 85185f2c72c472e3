package storetest

import "strings"

// Harmful is how a row fails.
type Harmful struct{ at, does string }

// Harms are the ways in which a row fails: at statements that read or write it, and with an error or without an end.
var Harms = map[string]Harmful{
	"is refused":       {"write", `RAISE EXCEPTION 'the row is damaged' USING ERRCODE = 'data_corrupted'`},
	"hangs":            {"write", `PERFORM pg_sleep(60)`},
	"cannot be read":   {"read", `RAISE EXCEPTION 'the row is damaged' USING ERRCODE = 'data_corrupted'`},
	"is read for ever": {"read", `PERFORM pg_sleep(60)`},
}

// Harm has the rows of a table fail of which a condition is true, until it is mended. In the condition, the
// row is r.
func Harm(c Fixture, table, row string, h Harmful) (mend func()) {
	c.T.Helper()
	c.Exec(`CREATE OR REPLACE FUNCTION punctual.is_hostile(run uuid, job uuid) RETURNS boolean LANGUAGE sql
			SECURITY DEFINER AS 'SELECT EXISTS (SELECT FROM punctual.runs r WHERE r.id = run AND r.job_id = job)';
		GRANT EXECUTE ON FUNCTION punctual.is_hostile TO PUBLIC`)
	if h.at == "write" {
		c.Exec(`CREATE FUNCTION punctual.harm() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
			DECLARE r punctual.` + table + `;
			BEGIN
				r := CASE WHEN TG_OP = 'DELETE' THEN OLD ELSE NEW END;
				IF ` + row + ` THEN ` + h.does + `; END IF;
				RETURN CASE WHEN TG_OP = 'DELETE' THEN OLD ELSE NEW END;
			END $$;
			GRANT EXECUTE ON FUNCTION punctual.harm TO PUBLIC;
			CREATE TRIGGER harm BEFORE INSERT OR UPDATE OR DELETE ON punctual.` + table + `
				FOR EACH ROW EXECUTE FUNCTION punctual.harm()`)
		return func() { c.Exec(`DROP TRIGGER harm ON punctual.` + table) }
	}
	c.Exec(`CREATE FUNCTION punctual.harm() RETURNS boolean LANGUAGE plpgsql AS $$
		BEGIN ` + h.does + `; RETURN true; END $$;
		GRANT EXECUTE ON FUNCTION punctual.harm TO PUBLIC`)
	all := Column[string](c, `
		SELECT relid::regclass::text || CASE WHEN c.relrowsecurity THEN '' ELSE ' open' END
		FROM pg_partition_tree(('punctual.' || $1)::regclass) p JOIN pg_class c ON c.oid = p.relid
		UNION SELECT 'punctual.' || $1 || CASE WHEN c.relrowsecurity THEN '' ELSE ' open' END
		FROM pg_class c WHERE c.oid = ('punctual.' || $1)::regclass`, table)
	for _, one := range all {
		one, _ := strings.CutSuffix(one, " open")
		c.Exec(`ALTER TABLE ` + one + ` ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
			CREATE POLICY harmless ON ` + one + ` TO CURRENT_USER USING (true) WITH CHECK (true);
			CREATE POLICY harm ON ` + one + ` AS RESTRICTIVE USING (CASE WHEN ` +
			strings.ReplaceAll(row, "r.", one[strings.Index(one, ".")+1:]+".") + ` THEN punctual.harm() ELSE true END)
				WITH CHECK (true)`)
	}
	return func() {
		for _, one := range all {
			one, open := strings.CutSuffix(one, " open")
			c.Exec(`DROP POLICY IF EXISTS harm ON ` + one + `; DROP POLICY IF EXISTS harmless ON ` + one + `;
				ALTER TABLE IF EXISTS ` + one + ` NO FORCE ROW LEVEL SECURITY`) // the table of a day may be gone by now
			if open {
				c.Exec(`ALTER TABLE IF EXISTS ` + one + ` DISABLE ROW LEVEL SECURITY`)
			}
		}
	}
}
