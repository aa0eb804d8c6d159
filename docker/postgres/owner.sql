-- Creates the owner of the tables; `annals grants` creates the other logins as this one. The
-- image runs it for an empty volume. For one of an earlier release, where the superuser owns the
-- tables, after `docker compose up --detach postgres`:
--   docker compose exec postgres psql --username annals -f /docker-entrypoint-initdb.d/owner.sql
\set ON_ERROR_STOP on
\getenv password OWNER_PASSWORD
SELECT NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'owner_login') AS missing \gset
\if :missing
CREATE ROLE owner_login;
\endif
ALTER ROLE owner_login LOGIN CREATEROLE CONNECTION LIMIT 7 PASSWORD :'password';
ALTER DATABASE :"DBNAME" OWNER TO owner_login;
DO $$ DECLARE found regclass; BEGIN
    FOR found IN SELECT oid FROM pg_class WHERE relnamespace = 'public'::regnamespace
        AND relkind IN ('r', 'p') AND relowner <> 'owner_login'::regrole
    LOOP EXECUTE format('ALTER TABLE %s OWNER TO owner_login', found); END LOOP;
END $$;
